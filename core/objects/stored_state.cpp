// SPDX-License-Identifier: Apache-2.0
#include "core/objects/stored_state.h"

namespace gsc {

gsc_tensor scales_of(const gsc_tensor &t) {
  const int32_t dtype = scale_dtype_of(t.dtype);
  if (dtype == 0 || t.scale == nullptr) return GSC_TENSOR_INIT(nullptr, 0, GSC_FP8_E8M0);
  return GSC_TENSOR_INIT(const_cast<void *>(t.scale), state_groups(t.count), dtype);
}

void set_scales(gsc_tensor &t, const void *scales) {
  t.scale_dtype = scale_dtype_of(t.dtype);
  if (t.scale_dtype == 0) return;
  t.scale = scales;
  t.scale_block_rows = 1;
  t.scale_block_columns = kStateGroup;
}

StateArray array_of(const gsc_tensor &t) { return {t.data, const_cast<void *>(t.scale), t.dtype}; }

int64_t stored_bytes(int32_t dtype, int64_t count) {
  return count * dtype_bytes(dtype) + (is_grouped(dtype) ? state_groups(count) : 0);
}

StateArray array_of_stored(int32_t dtype, void *data, int64_t count) {
  return {data, static_cast<char *>(data) + count * dtype_bytes(dtype), dtype};
}

namespace {

/// f(device, offset in host memory, bytes) for the elements and for their scales.
template <typename F>
void for_stored(const gsc_tensor &t, const F &f) {
  if (t.count == 0) return;
  const int64_t bytes = t.count * dtype_bytes(t.dtype);
  f(t.data, int64_t{0}, bytes);
  if (is_grouped(t.dtype)) f(const_cast<void *>(t.scale), bytes, state_groups(t.count));
}

}  // namespace

void read_stored(Backend &backend, const gsc_tensor &t, void *host, gsc_stream stream) {
  for_stored(t, [&](void *device, int64_t offset, int64_t bytes) {
    backend.read_sync(static_cast<char *>(host) + offset, device, bytes, stream);
  });
}

void write_stored(Backend &backend, const gsc_tensor &t, const void *host, gsc_stream stream) {
  for_stored(t, [&](void *device, int64_t offset, int64_t bytes) {
    backend.write_sync(device, static_cast<const char *>(host) + offset, bytes, stream);
  });
}

}  // namespace gsc
