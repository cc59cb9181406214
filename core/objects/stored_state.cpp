// SPDX-License-Identifier: Apache-2.0
#include "core/objects/stored_state.h"

#include <cstring>

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

namespace {

/// Where the scales begin.
int64_t scales_begin(int32_t dtype, int64_t count) {
  const int64_t bytes = count * dtype_bytes(dtype);
  const int64_t size = scale_size(dtype);
  return size > 1 ? (bytes + size - 1) / size * size : bytes;
}

int64_t bytes_of_scales(int32_t dtype, int64_t count) { return state_groups(count) * scale_size(dtype); }

/// f(device, offset in host memory, bytes) for the elements and for their scales.
template <typename F>
void for_stored(const gsc_tensor &t, const F &f) {
  if (t.count == 0) return;
  f(t.data, int64_t{0}, t.count * dtype_bytes(t.dtype));
  const int64_t bytes = bytes_of_scales(t.dtype, t.count);
  if (bytes > 0) f(const_cast<void *>(t.scale), scales_begin(t.dtype, t.count), bytes);
}

}  // namespace

int64_t stored_bytes(int32_t dtype, int64_t count) {
  return scales_begin(dtype, count) + bytes_of_scales(dtype, count);
}

StateArray array_of_stored(int32_t dtype, void *data, int64_t count) {
  return {data, static_cast<char *>(data) + scales_begin(dtype, count), dtype};
}

void read_stored(Backend &backend, const gsc_tensor &t, void *host, gsc_stream stream) {
  const int64_t bytes = t.count * dtype_bytes(t.dtype);
  std::memset(static_cast<char *>(host) + bytes, 0, scales_begin(t.dtype, t.count) - bytes);  // between the two
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
