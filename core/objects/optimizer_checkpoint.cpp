// SPDX-License-Identifier: Apache-2.0
// Optimizer checkpoints: a header, one shape per tensor, the state tensors slot after slot, the lags if tensors are
// counted, and a checksum, in the byte order of this machine. docs/reference/abi.md has every offset. Hyper-parameters are the caller's and not part of it.
#include <cstring>

#include "core/base/checksum.h"
#include "core/base/error.h"
#include "core/objects/optimizer.h"

namespace gsc {
namespace {

constexpr char kMagic[8] = {'G', 'S', 'C', 'O', 'P', 'T', '2', '\n'};
constexpr uint32_t kByteOrder = 0x01020304;
constexpr uint32_t kOtherByteOrder = 0x04030201;

struct Header {
  char magic[8];
  uint32_t byte_order;
  int32_t kind;
  int32_t slots;
  int32_t has_lags;  ///< 0 or 1
  int64_t tensors;
  int64_t applied;
  int64_t skipped;
  int64_t bytes;  ///< of the whole, header and checksum included
};
static_assert(sizeof(Header) == 56);

struct Shape {
  int64_t count;
  int64_t dtype;
};

int64_t tensor_bytes(const Tensor &t) { return t.count * dtype_bytes(t.dtype); }

using Checksum = uint64_t;

/// Calls f(tensor, position) for every state tensor of a checkpoint; returns the position of the checksum.
template <typename F>
int64_t for_each_state(const Optimizer &optimizer, int64_t tensors, const F &f) {
  int64_t position = static_cast<int64_t>(sizeof(Header)) + tensors * static_cast<int64_t>(sizeof(Shape));
  for (int32_t slot = 0; slot < optimizer.slot_count(); ++slot) {
    const Plan &plan = optimizer.state(slot)->plan();
    for (int64_t i = 0; i < plan.size(); ++i) {
      f(plan.tensor(i), position);
      position += tensor_bytes(plan.tensor(i));
    }
  }
  return position;
}

}  // namespace

int64_t Optimizer::save_size(bool has_lags) const {
  const int64_t tensors = lists_.params->plan().size();
  const int64_t end = for_each_state(*this, tensors, [](const Tensor &, int64_t) {});
  return end + (has_lags ? tensors * static_cast<int64_t>(sizeof(int64_t)) : 0) +
         static_cast<int64_t>(sizeof(Checksum));
}

void Optimizer::save_sync(void *buffer, int64_t size, gsc_stream stream) const {
  const int64_t needed = save_size();
  if (size != needed) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "size", "is %lld; this optimizer needs %lld bytes", static_cast<long long>(size),
         static_cast<long long>(needed));
  }
  require_whole_state();
  Backend &backend = context_->backend();
  const Plan &params = lists_.params->plan();
  auto *out = static_cast<char *>(buffer);
  const OptimizerRecord record = steps(stream);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.byte_order = kByteOrder;
  header.kind = options_[0].kind;
  header.slots = slot_count_;
  header.has_lags = counts_each_tensor() ? 1 : 0;
  header.tensors = params.size();
  header.applied = record.applied;
  header.skipped = record.skipped;
  header.bytes = needed;
  std::memcpy(out, &header, sizeof header);
  for (int64_t i = 0; i < params.size(); ++i) {
    const Shape shape{params.tensor(i).count, state_dtype(params.tensor(i).dtype)};
    std::memcpy(out + sizeof header + static_cast<std::size_t>(i) * sizeof shape, &shape, sizeof shape);
  }
  const int64_t lags = for_each_state(*this, params.size(), [&](const Tensor &t, int64_t position) {
    if (t.count > 0) backend.read_sync(out + position, t.data, tensor_bytes(t), stream);
  });
  if (counts_each_tensor()) backend.read_sync(out + lags, lags_.as<int64_t>(), lags_.bytes(), stream);
  const int64_t end = lags + lags_.bytes();
  const Checksum sum = checksum(out, end);
  std::memcpy(out + end, &sum, sizeof sum);
}

void Optimizer::load_sync(const void *buffer, int64_t size, gsc_stream stream) {
  Backend &backend = context_->backend();
  const Plan &params = lists_.params->plan();
  const auto *in = static_cast<const char *>(buffer);
  Header header;
  if (size < static_cast<int64_t>(sizeof header)) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "buffer", "is truncated: size is %lld bytes, less than a header",
         static_cast<long long>(size));
  }
  std::memcpy(&header, in, sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "buffer", "does not hold the state of a gradscaler optimizer in format 2");
  }
  if (header.byte_order != kByteOrder) {
    if (header.byte_order == kOtherByteOrder) {
      fail(GSC_ERROR_INVALID_ARGUMENT, "buffer", "was saved on a machine of the other byte order");
    }
    fail(GSC_ERROR_INVALID_ARGUMENT, "buffer", "is damaged: its byte-order mark is invalid");
  }
  if (header.has_lags != 0 && header.has_lags != 1) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "buffer", "was saved by a newer version, or is damaged: its flags are %d",
         header.has_lags);
  }
  if (header.kind != options_[0].kind || header.slots != slot_count_) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "buffer", "holds kind %d with %d state slots; this optimizer is kind %d with %d",
         header.kind, header.slots, options_[0].kind, slot_count_);
  }
  if (header.tensors != params.size()) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "buffer", "holds %lld tensors, but the optimizer has %lld",
         static_cast<long long>(header.tensors), static_cast<long long>(params.size()));
  }
  const bool has_lags = header.has_lags != 0;
  const int64_t needed = save_size(has_lags);
  if (size < needed) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "buffer", "is truncated: size is %lld of %lld bytes", static_cast<long long>(size),
         static_cast<long long>(needed));
  }
  for (int64_t i = 0; i < params.size(); ++i) {
    Shape shape;
    std::memcpy(&shape, in + sizeof header + static_cast<std::size_t>(i) * sizeof shape, sizeof shape);
    if (shape.count != params.tensor(i).count || shape.dtype != state_dtype(params.tensor(i).dtype)) {
      fail(GSC_ERROR_INVALID_ARGUMENT, Argument("buffer").tensor(i),
           "has %lld elements of dtype %lld; here it has %lld of %d", static_cast<long long>(shape.count),
           static_cast<long long>(shape.dtype), static_cast<long long>(params.tensor(i).count),
           state_dtype(params.tensor(i).dtype));
    }
  }
  if (size != needed || header.bytes != needed) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "size", "is %lld, but this optimizer's state has %lld bytes",
         static_cast<long long>(size), static_cast<long long>(needed));
  }
  const int64_t end = needed - static_cast<int64_t>(sizeof(Checksum));
  Checksum sum;
  std::memcpy(&sum, in + end, sizeof sum);
  if (sum != checksum(in, end)) {
    fail(GSC_ERROR_INVALID_ARGUMENT, "buffer", "is damaged: its checksum is %016llx, but its bytes give %016llx",
         static_cast<unsigned long long>(sum), static_cast<unsigned long long>(checksum(in, end)));
  }
  for (const int64_t steps : {header.applied, header.skipped}) {
    if (steps >= 0 && steps <= kMostSteps) continue;
    fail(GSC_ERROR_INVALID_ARGUMENT, "buffer", "holds %lld applied and %lld skipped steps; they must be in 0..2^53",
         static_cast<long long>(header.applied), static_cast<long long>(header.skipped));
  }
  const int64_t lag_bytes = has_lags ? params.size() * static_cast<int64_t>(sizeof(int64_t)) : 0;
  for (int64_t i = 0; has_lags && i < params.size(); ++i) {
    int64_t lag;
    std::memcpy(&lag, in + end - lag_bytes + i * static_cast<int64_t>(sizeof lag), sizeof lag);
    if (lag >= 0 && lag <= header.applied) continue;
    fail(GSC_ERROR_INVALID_ARGUMENT, Argument("buffer").tensor(i), "was absent from %lld of %lld applied steps",
         static_cast<long long>(lag), static_cast<long long>(header.applied));
  }
  if (has_lags) count_each_tensor();
  const OptimizerRecord steps{header.applied, header.skipped};
  // There is no memory for a second copy of the state: if the device fails in between, nothing but another load is
  // allowed.
  grads().precede(CallStream(backend, stream));
  half_loaded_ = true;
  used_state_ = true;
  backend.write_sync(record_.as<OptimizerRecord>(), &steps, sizeof steps, stream);
  for_each_state(*this, params.size(), [&](const Tensor &t, int64_t position) {
    if (t.count > 0) backend.write_sync(t.data, in + position, tensor_bytes(t), stream);
  });
  if (has_lags) {
    backend.write_sync(lags_.as<int64_t>(), in + end - lag_bytes, lag_bytes, stream);
  } else if (counts_each_tensor()) {
    const Vec<int64_t> none(static_cast<std::size_t>(params.size()), 0, context_->memory());
    backend.write_sync(lags_.as<int64_t>(), none.data(), lags_.bytes(), stream);
  }
  half_loaded_ = false;
  half_stepped_ = false;
}

}  // namespace gsc
