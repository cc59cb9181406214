// SPDX-License-Identifier: Apache-2.0
// Optimizer checkpoints: a header with the average of the gradients' norms, one shape per tensor, the state tensors slot
// after slot, the lags if tensors are counted, and a checksum, in the byte order of this machine. docs/reference/abi.md
// has every offset. State in another format than the optimizer's is converted. Hyper-parameters are the caller's and not
// part of it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/checksum.h"
#include "core/base/error.h"
#include "core/objects/optimizer.h"
#include "core/objects/stored_state.h"
#include "core/rules/state_codes.h"

namespace gsc {
namespace {

constexpr char kMagic[8] = {'G', 'S', 'C', 'O', 'P', 'T', '4', '\n'};
constexpr uint32_t kByteOrder = 0x01020304;
constexpr uint32_t kOtherByteOrder = 0x04030201;

struct Header {
  char magic[8];
  uint32_t byte_order;
  int32_t kind;
  int32_t slots;
  int32_t flags;  ///< kHasLags, kEvaluating, kHasEma
  int64_t tensors;
  int64_t applied;
  int64_t skipped;
  int64_t bytes;  ///< of the whole, header and checksum included
  NormAverage norms;
};
static_assert(sizeof(Header) == 96);

constexpr int32_t kHasLags = 1;
constexpr int32_t kEvaluating = 2;  ///< the parameters were averages
constexpr int32_t kHasEma = 4;      ///< the slot after those of the formula is the average of the weights

struct Shape {
  int64_t count;
  int64_t dtypes;  ///< see packed_dtypes
};

using Checksum = uint64_t;

/// The dtypes of a tensor's slots as Shape has them: one for all slots, or a byte for each, that of slot 0 lowest.
int64_t packed_dtypes(const Optimizer &optimizer, int64_t tensor, int32_t param_dtype) {
  int64_t packed = 0;
  bool is_full = true;  // of one dtype
  for (int32_t slot = 0; slot < optimizer.state_count(); ++slot) {
    const int32_t dtype = optimizer.state(slot)->plan().tensor(tensor).dtype;
    packed |= int64_t{dtype} << (8 * slot);
    is_full = is_full && dtype == state_dtype(param_dtype);
  }
  return is_full ? state_dtype(param_dtype) : packed;
}
int32_t unpacked_dtype(const Shape &shape, int32_t slot) {
  return static_cast<int32_t>(shape.dtypes < 256 ? shape.dtypes : shape.dtypes >> (8 * slot) & 255);
}

/// Where a checkpoint's state begins.
int64_t state_begin(int64_t tensors) { return int64_t{sizeof(Header)} + tensors * int64_t{sizeof(Shape)}; }

}  // namespace

int64_t Optimizer::save_size() const {
  const Plan &params = lists_.params->plan();
  int64_t size = state_begin(params.size()) + lags_.bytes() + int64_t{sizeof(Checksum)};
  for (int32_t slot = 0; slot < slot_count_; ++slot) {
    for (int64_t i = 0; i < params.size(); ++i) {
      const Tensor &t = lists_.state[slot]->plan().tensor(i);
      size += stored_bytes(t.dtype, t.count);
    }
  }
  return size;
}

void Optimizer::save_sync(void *buffer, int64_t size, gsc_stream stream) const {
  const int64_t needed = save_size();
  if (size != needed) {
    refuse("size", "is %lld; this optimizer needs %lld bytes", static_cast<long long>(size),
           static_cast<long long>(needed));
  }
  require_whole_state();
  Backend &backend = context_->backend();
  const Plan &params = lists_.params->plan();
  auto *out = static_cast<char *>(buffer);
  CallStream call(*context_, stream);
  const OptimizerRecord record = read_steps(call);
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.byte_order = kByteOrder;
  header.kind = options_[0].kind;
  header.slots = slot_count_;
  header.flags = (counts_each_tensor() ? kHasLags : 0) | (evaluating_ ? kEvaluating : 0) | (has_ema() ? kHasEma : 0);
  header.tensors = params.size();
  header.applied = record.applied;
  header.skipped = record.skipped;
  header.bytes = needed;
  header.norms = grads().read_norms(call.stream());
  std::memcpy(out, &header, sizeof header);
  for (int64_t i = 0; i < params.size(); ++i) {
    const Shape shape{params.tensor(i).count, packed_dtypes(*this, i, params.tensor(i).dtype)};
    std::memcpy(out + sizeof header + i * sizeof shape, &shape, sizeof shape);
  }
  int64_t end = state_begin(params.size());
  for (int32_t slot = 0; slot < slot_count_; ++slot) {
    for (int64_t i = 0; i < params.size(); ++i) {
      const gsc_tensor t = lists_.state[slot]->at(i);
      read_stored(backend, t, out + end, call.stream());
      end += stored_bytes(t.dtype, t.count);
    }
  }
  if (lags_.bytes() > 0) backend.read_sync(out + end, lags_.as<int64_t>(), lags_.bytes(), call.stream());
  end += lags_.bytes();
  const Checksum sum = checksum(out, end);
  std::memcpy(out + end, &sum, sizeof sum);
}

bool Optimizer::is_loadable(int32_t dtype, int32_t slot, int64_t tensor) const {
  const int32_t own = lists_.state[slot]->plan().tensor(tensor).dtype;
  if (dtype == own) return true;
  if (is_wide(own)) return false;
  return dtype == GSC_FP32 || is_code_of(dtype, slot_holds(slot));
}

void Optimizer::load_sync(const void *buffer, int64_t size, gsc_stream stream) {
  Backend &backend = context_->backend();
  const Plan &params = lists_.params->plan();
  const auto *in = static_cast<const char *>(buffer);
  Header header;
  if (size < int64_t{sizeof header}) {
    refuse("buffer", "is truncated: size is %lld bytes, less than a header", static_cast<long long>(size));
  }
  std::memcpy(&header, in, sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    refuse("buffer", "does not hold the state of a gradscaler optimizer in format 4");
  }
  if (header.byte_order != kByteOrder) {
    if (header.byte_order == kOtherByteOrder) {
      refuse("buffer", "was saved on a machine of the other byte order");
    }
    refuse("buffer", "is damaged: its byte-order mark is invalid");
  }
  if ((header.flags & ~(kHasLags | kHasEma | (averages(variant_) ? kEvaluating : 0))) != 0) {
    refuse("buffer", "was saved by a newer version, or is damaged: its flags are %d", header.flags);
  }
  if (((header.flags & kHasEma) != 0) != has_ema()) {
    refuse("buffer", "has %s average of the weights, and this optimizer %s", has_ema() ? "no" : "an",
           has_ema() ? "needs one" : "does not keep one");
  }
  const int32_t states = gsc::slot_count(variant_) + (has_ema() ? 1 : 0);
  const bool has_remainders = header.slots == states + 1;
  if (header.kind != options_[0].kind || (header.slots != states && !has_remainders)) {
    refuse("buffer", "holds kind %d with %d state slots; this optimizer is kind %d with %d", header.kind, header.slots,
           options_[0].kind, slot_count_);
  }
  if (has_remainders && !splits_masters()) {
    refuse("buffer", "holds the remainders of split masters, but this optimizer's master_format has none");
  }
  if (header.tensors != params.size()) {
    refuse("buffer", "holds %lld tensors, but the optimizer has %lld", static_cast<long long>(header.tensors),
           static_cast<long long>(params.size()));
  }
  if (size < state_begin(params.size())) {
    refuse("buffer", "is truncated: size is %lld bytes, less than the shapes of its tensors",
           static_cast<long long>(size));
  }
  Vec<Shape> shapes(params.size(), Shape{}, context_->memory());
  if (!shapes.empty()) std::memcpy(shapes.data(), in + sizeof header, shapes.size() * sizeof(Shape));
  int64_t needed = state_begin(params.size()) + int64_t{sizeof(Checksum)};
  int64_t largest = 0;  // state that is converted, and remainders that are 0
  int64_t zeros = 0;
  for (int64_t i = 0; i < params.size(); ++i) {
    const Shape &shape = shapes[i];
    const Tensor &param = params.tensor(i);
    // A byte for a slot that is not there is 0.
    bool fits = shape.count == param.count && shape.dtypes >= 0 &&
                (shape.dtypes < 256 || shape.dtypes >> (8 * header.slots) == 0);
    for (int32_t slot = 0; fits && slot < header.slots; ++slot) {
      const int32_t dtype = unpacked_dtype(shape, slot);
      fits = slot < states ? is_loadable(dtype, slot, i) : dtype == GSC_INT16 || dtype == GSC_INT8;
      const Slot holds = slot < states ? slot_holds(slot) : Slot::kMoment;
      if (fits) needed += stored_bytes(dtype, slot_elements(holds, shape.count));
    }
    for (int32_t slot = 0; slot < slot_count_; ++slot) {
      const Tensor &t = lists_.state[slot]->plan().tensor(i);
      const int32_t dtype = slot < header.slots ? unpacked_dtype(shape, slot) : t.dtype;
      if (slot >= header.slots) zeros = std::max(zeros, stored_bytes(dtype, t.count));
      if (dtype != t.dtype) largest = std::max(largest, stored_bytes(dtype, t.count));
    }
    if (header.slots == 0) fits = fits && shape.dtypes == state_dtype(param.dtype);
    if (fits) continue;
    refuse(
        Argument("buffer").tensor(i),
        "has %lld elements with state of dtypes 0x%llx; here it has %lld, and the dtypes cannot be converted to 0x%llx",
        static_cast<long long>(shape.count), static_cast<long long>(shape.dtypes), static_cast<long long>(param.count),
        static_cast<long long>(packed_dtypes(*this, i, param.dtype)));
  }
  const bool has_lags = (header.flags & kHasLags) != 0;
  const int64_t lag_bytes = has_lags ? params.size() * int64_t{sizeof(int64_t)} : 0;
  needed += lag_bytes;
  if (size < needed) {
    refuse("buffer", "is truncated: size is %lld of %lld bytes", static_cast<long long>(size),
           static_cast<long long>(needed));
  }
  if (size != needed || header.bytes != needed) {
    refuse("size", "is %lld, but this optimizer's state has %lld bytes", static_cast<long long>(size),
           static_cast<long long>(needed));
  }
  const int64_t end = needed - int64_t{sizeof(Checksum)};
  Checksum sum;
  std::memcpy(&sum, in + end, sizeof sum);
  if (sum != checksum(in, end)) {
    refuse("buffer", "is damaged: its checksum is %016llx, but its bytes give %016llx",
           static_cast<unsigned long long>(sum), static_cast<unsigned long long>(checksum(in, end)));
  }
  for (const int64_t steps : {header.applied, header.skipped}) {
    if (steps >= 0 && steps <= kMostSteps) continue;
    refuse("buffer", "holds %lld applied and %lld skipped steps; they must be in 0..2^53",
           static_cast<long long>(header.applied), static_cast<long long>(header.skipped));
  }
  const NormAverage &norms = header.norms;
  const bool is_average = std::isfinite(norms.mean) && std::isfinite(norms.variance) && norms.variance >= 0.0 &&
                          std::isfinite(norms.run_mean) && norms.count >= 0 && norms.run > INT32_MIN;
  if (!is_average) refuse("buffer", "holds an average of norms that cannot be one");
  for (int64_t i = 0; has_lags && i < params.size(); ++i) {
    int64_t lag;
    std::memcpy(&lag, in + end - lag_bytes + i * int64_t{sizeof lag}, sizeof lag);
    if (lag >= 0 && lag <= header.applied) continue;
    refuse(Argument("buffer").tensor(i), "was absent from %lld of %lld applied steps", static_cast<long long>(lag),
           static_cast<long long>(header.applied));
  }
  if (has_lags) count_each_tensor();
  const DeviceMemory staged(backend, largest);
  const ReleaseBehind behind(grads().order());
  const Vec<char> no_remainder(zeros, 0, context_->memory());
  const Vec<int64_t> no_lags(has_lags || !counts_each_tensor() ? 0 : params.size(), 0, context_->memory());
  const OptimizerRecord steps{header.applied, header.skipped};
  // There is no memory for a second copy of the state: if the device fails in between, nothing but another load is
  // allowed.
  CallStream call(*context_, stream);
  use(call);
  half_loaded_ = true;
  used_state_ = true;
  int64_t position = state_begin(params.size());
  for (int32_t slot = 0; slot < slot_count_; ++slot) {
    const TensorList &list = *lists_.state[slot];
    for (int64_t i = 0; i < params.size(); ++i) {
      const Tensor &t = list.plan().tensor(i);
      if (t.count == 0) continue;
      if (slot >= header.slots) {  // masters that are the weights themselves
        write_stored(backend, list.at(i), no_remainder.data(), call.stream());
        continue;
      }
      const int32_t from = unpacked_dtype(shapes[i], slot);
      if (from == t.dtype) {
        write_stored(backend, list.at(i), in + position, call.stream());
      } else {
        backend.write_sync(staged.as<char>(), in + position, stored_bytes(from, t.count), call.stream());
        backend.convert({array_of_stored(from, staged.as<char>(), t.count), {}, array_of(list.at(i)), t.count},
                        call.stream());
      }
      position += stored_bytes(from, t.count);
    }
  }
  // Last: it waits for the conversions, which read the staged state.
  backend.write_sync(record_.as<OptimizerRecord>(), &steps, sizeof steps, call.stream());
  if (has_lags) {
    backend.write_sync(lags_.as<int64_t>(), in + end - lag_bytes, lag_bytes, call.stream());
  } else if (counts_each_tensor()) {
    backend.write_sync(lags_.as<int64_t>(), no_lags.data(), lags_.bytes(), call.stream());
  }
  lists_.grads->write_norms(norms, call.stream());
  half_loaded_ = false;
  half_stepped_ = false;
  slices.is_begun = false;
  evaluating_ = (header.flags & kEvaluating) != 0;
}

}  // namespace gsc
