// SPDX-License-Identifier: Apache-2.0
// The functions that the kernels call, of one element, one tensor or one record: core/rules in a form without
// templates. core/vulkan/translate turns each of them, and what they use, into GLSL; tests/vulkan/rules_test compares
// the two. Host code does not call them.
#pragma once

#include "core/rules/check.h"
#include "core/rules/gradient.h"
#include "core/rules/random.h"
#include "core/rules/split.h"
#include "core/rules/step_coefficients.h"
#include "core/vulkan/kernels.h"

namespace gsc::vulkan {

inline constexpr int32_t kFp64 = GSC_FP64;
inline constexpr uint64_t kResultBytes = sizeof(ChunkResult);

// Elements as they are stored, in the low bits of a word.

GSC_HD uint64_t stored_bits(uint16_t x) { return x; }
GSC_HD uint64_t stored_bits(float x) { return to_bits(x); }
GSC_HD uint64_t stored_bits(double x) { return to_bits(x); }
template <typename S>
GSC_HD S from_stored(uint64_t word) {
  if constexpr (sizeof(S) == 8) {
    return from_bits(word);
  } else if constexpr (sizeof(S) == 4) {
    return from_bits(static_cast<uint32_t>(word));
  } else {
    return static_cast<S>(word);
  }
}

/// An element of any dtype as a double. Exact.
GSC_HD double widen_double(int32_t dtype, uint64_t stored) {
  return with_dtype(dtype, [&](auto d) {
    using D = decltype(d);
    return static_cast<double>(D::widen(from_stored<typename D::Stored>(stored)));
  });
}
GSC_HD uint64_t narrow_double(int32_t dtype, double x) {
  return with_dtype(dtype, [&](auto d) { return stored_bits(narrow_to<decltype(d)>(x)); });
}
/// The same of the dtypes that are computed in fp32.
GSC_HD float widen_float(int32_t dtype, uint32_t stored) {
  return with_dtype(dtype, [&](auto d) {
    using D = decltype(d);
    if constexpr (sizeof(typename D::Value) == sizeof(float)) return D::widen(from_stored<typename D::Stored>(stored));
    return 0.0F;
  });
}
GSC_HD uint32_t narrow_float(int32_t dtype, float x) {
  return with_dtype(dtype, [&](auto d) {
    using D = decltype(d);
    if constexpr (sizeof(typename D::Value) == sizeof(float)) return static_cast<uint32_t>(stored_bits(D::narrow(x)));
    return uint32_t{0};
  });
}

// The place of work.

/// A chunk or a part of one.
struct Place {
  int64_t tensor;
  int64_t offset;  ///< first element
  int32_t n;       ///< elements; 0: the tensor is absent, or ends before the part
};

GSC_HD Place place_of_part(const PlanView &plan, int64_t part, int32_t split) {
  const int64_t chunk = part >> split;
  Place r = {plan.tensor_of[chunk], 0, 0};
  const DeviceTensor &t = plan.tensors[r.tensor];
  const int64_t elements = int64_t{1} << (plan.chunk_shift - split);
  r.offset = ((chunk - t.first_chunk) << plan.chunk_shift) + (part & ((int64_t{1} << split) - 1)) * elements;
  const int64_t left = t.count - r.offset;
  if (t.data != nullptr && left > 0) r.n = static_cast<int32_t>(least(left, elements));
  return r;
}

/// An array from an element on: 0 without `tensors`.
struct Span {
  void *data;
  int32_t dtype;
  int32_t bytes;  ///< of an element
};
GSC_HD Span span_of(const DeviceTensor *tensors, int64_t tensor, int64_t offset) {
  Span r = {nullptr, 0, 0};
  if (tensors == nullptr) return r;
  const DeviceTensor &t = tensors[tensor];
  r.dtype = t.dtype;
  r.bytes = static_cast<int32_t>(dtype_bytes(t.dtype));
  r.data = static_cast<char *>(t.data) + offset * r.bytes;
  return r;
}

// Check.

GSC_HD float scale_or_one(const float *scale) { return scale != nullptr ? *scale : 1.0F; }

GSC_HD uint32_t magnitude_float(float x) { return to_bits(x) & 0x7fffffffU; }
GSC_HD uint64_t magnitude_double(double x) { return to_bits(x) & 0x7fffffffffffffffU; }
GSC_HD float limit_float(int32_t dtype, bool write) {
  return with_dtype(dtype, [&](auto d) {
    using D = decltype(d);
    return static_cast<float>(write ? finite_limit<D, true>(0.0) : finite_limit<D, false>(0.0));
  });
}
/// Whether tiles with this largest magnitude can be summed in the arithmetic type of their dtype.
GSC_HD bool sum_fits(int32_t dtype, float largest) {
  return with_dtype(dtype, [](auto d) { return decltype(d)::kSquaresFit; }) || squares_fit(largest);
}
GSC_HD bool tile_is_finite_float(uint32_t largest, float inv_scale, float limit) {
  return is_finite_tile(from_bits(magnitude_float(from_bits(largest) * inv_scale)), limit);
}
GSC_HD bool tile_is_finite_double(uint64_t largest, double inv_scale, double limit) {
  return is_finite_tile(from_bits(magnitude_double(from_bits(largest) * inv_scale)), limit);
}

/// What was found in elements that are not all finite.
struct Nonfinite {
  int32_t inf_count;
  int32_t nan_count;
  int32_t first;  ///< INT32_MAX: none
  double amax;    ///< of the finite ones
};
template <typename Value, typename Bits>
GSC_HD void judge(Value x, Value inv_scale, Value limit, int32_t offset, Nonfinite &found) {
  const Value scaled = x * inv_scale;
  const Bits bits = to_bits(x) & (~Bits{0} >> 1);
  const Value magnitude = from_bits(to_bits(scaled) & (~Bits{0} >> 1));
  const bool bad = is_nonfinite<Value, Bits>(bits, magnitude, limit);
  const bool is_nan = counts_as_nan<Value, Bits>(bits, scaled);
  if (is_nan) {
    found.nan_count += 1;
  } else if (bad) {
    found.inf_count += 1;
  }
  if (bad && offset < found.first) found.first = offset;
  const auto size = static_cast<double>(from_bits(bits));
  if (bits < kInfinityBits<Value, Bits> && size > found.amax) found.amax = size;
}
GSC_HD void judge_float(float x, float inv_scale, float limit, int32_t offset, Nonfinite &found) {
  judge<float, uint32_t>(x, inv_scale, limit, offset, found);
}
GSC_HD void judge_double(double x, double inv_scale, double limit, int32_t offset, Nonfinite &found) {
  judge<double, uint64_t>(x, inv_scale, limit, offset, found);
}

/// A chunk's result from its sums and what was not finite.
GSC_HD ChunkResult chunk_result(double sum_sq, const Nonfinite &found, bool amax_keeps_nonfinite) {
  ChunkResult r = {sum_sq, found.amax, found.inf_count, found.nan_count, found.first, 0};
  if (found.inf_count > 0) r.sum_sq = __builtin_inf();
  if (found.nan_count > 0) r.sum_sq = from_bits(uint64_t{0x7ff8000000000000U});
  const bool none = found.inf_count == 0 && found.nan_count == 0;
  if (none) r.first = -1;
  if (amax_keeps_nonfinite && !none) r.amax = r.sum_sq;
  return r;
}

/// Writes a list's totals. `first`: what chunk_result has of `first_chunk`, the first chunk with something that is not
/// finite; INT64_MAX if there is none.
GSC_HD void finish_list(const CheckArgs &a, double sum_sq, double amax, int64_t inf_count, int64_t nan_count,
                        int64_t first_chunk, int32_t first) {
  CheckTotals totals = {sum_sq, amax, inf_count, nan_count, -1, -1};
  if (first_chunk != INT64_MAX) {
    totals.first_tensor = a.plan.tensor_of[first_chunk];
    const int64_t chunk = first_chunk - a.plan.tensors[totals.first_tensor].first_chunk;
    totals.first_element = (chunk << a.plan.chunk_shift) + first;
  }
  finish_check(*a.record, totals, scale_or_one(a.inv_scale));
  if (a.conclude) conclude_check(*a.record, a.rule, a.scaler);
}

/// A NaN in b fails b <= a and is taken; a NaN in a is kept.
GSC_HD double larger(double a, double b) { return a != a || b <= a ? a : b; }
GSC_HD double norm_of(double sum_sq, float inv_scale) { return tensor_norm(sum_sq, inv_scale); }

// Records.

GSC_HD void run_record(const RecordArgs &a) {
  UpdateSummary summary = empty_summary();
  if (a.job.kind == RecordJob::Kind::kUpdate) {
    if (a.more) summary = a.job.scaler->running;
    for (int64_t i = 0; i < a.job.list_count; ++i) add_to_summary(summary, *a.job.lists[i]);
    if (!a.last) {
      a.job.scaler->running = summary;
      return;
    }
  }
  run_record_job(a.job, summary);
}

// Steps.

/// The device scalars of a step.
struct StepInput {
  float inv_scale;
  float clip;
  bool skip;
};

/// An invalid learning rate or inverse scale skips the step: an error could not be reported from here.
GSC_HD StepInput read_scalars(const ApplyArgs &a) {
  StepInput r = {scale_or_one(a.step.inv_scale), scale_or_one(a.step.clip), false};
  r.skip = !a.step.checked_scale && !is_multiplier(r.inv_scale);
  if (a.step.found_inf != nullptr && *a.step.found_inf != 0.0F) r.skip = true;
  if (a.step.device_lrs) {
    for (int32_t g = 0; g < a.step.group_count; ++g) {
      const float *lr = a.step.groups[g].device_lr;
      if (lr != nullptr && !is_multiplier(*lr)) r.skip = true;
    }
  }
  return r;
}

/// Of a tensor that was absent from `lag` of the steps so far.
GSC_HD Coefficients<double> coefficients_of(const ApplyArgs &a, int64_t group, int64_t lag) {
  return group_coefficients(a.step, a.step.groups[group], a.step.record->applied + 1 - lag);
}

/// Coefficients of a group, or of a tensor whose lag it raises or whose average it advances.
GSC_HD void prepare_row(const ApplyArgs &a, int64_t row) {
  if (!has_tensor_coefficients(a.step)) {
    if (row < a.step.group_count) a.step.coefficients[row] = coefficients_of(a, row, 0);
    return;
  }
  if (row >= a.grads.size || read_scalars(a).skip) return;
  const DeviceTensor &t = a.grads.tensors[row];
  if (t.data == nullptr && t.count > 0) {
    a.step.lags[row] += 1;
    return;
  }
  const int64_t group = a.step.group_of != nullptr ? a.step.group_of[row] : 0;
  const int64_t lag = a.step.lags != nullptr ? a.step.lags[row] : 0;
  if (!a.step.averages) {
    a.step.coefficients[row] = coefficients_of(a, group, lag);
  } else if (t.count > 0) {
    a.step.coefficients[row] = average_coefficients(a.step, a.step.groups[group], step_number(a.step) - lag,
                                                    *static_cast<Average *>(a.numbers[row].data));
  }
}

GSC_HD int64_t coefficient_row(const ApplyArgs &a, int64_t tensor) {
  if (has_tensor_coefficients(a.step)) return tensor;
  return a.step.group_of != nullptr ? a.step.group_of[tensor] : 0;
}
GSC_HD Coefficients<float> coefficients_float(const ApplyArgs &a, int64_t tensor) {
  return narrow<float>(a.step.coefficients[coefficient_row(a, tensor)]);
}
GSC_HD Coefficients<double> coefficients_double(const ApplyArgs &a, int64_t tensor) {
  return a.step.coefficients[coefficient_row(a, tensor)];
}

/// Chunks of a tensor are [first_chunk_of, end_chunk).
GSC_HD int64_t first_chunk_of(const PlanView &plan, int64_t tensor) { return plan.tensors[tensor].first_chunk; }
GSC_HD int64_t end_chunk(const PlanView &plan, int64_t tensor) {
  return tensor + 1 < plan.size ? plan.tensors[tensor + 1].first_chunk : plan.chunk_count;
}
GSC_HD void store_ratio(const ApplyArgs &a, int64_t tensor, double param_sum_sq, double direction_sum_sq) {
  const DeviceTensor &grad = a.grads.tensors[tensor];
  if (grad.data == nullptr || grad.count == 0) return;
  const Coefficients<double> c = coefficients_double(a, tensor);
  double *number = a.numbers != nullptr ? static_cast<double *>(a.numbers[tensor].data) : nullptr;
  a.step.ratios[tensor] = make_ratio(a.step.variant, param_sum_sq, direction_sum_sq, c, number);
}

/// Counts the step and updates the scaler.
GSC_HD void finish_step(const ApplyArgs &a, bool skip) {
  count_step(a.step, skip);
  if (a.step.update == nullptr) return;
  UpdateSummary summary = empty_summary();
  add_to_summary(summary, *a.step.checked);
  conclude_update(*a.step.update, summary);
}

/// The address of the count of elements that a step leaves as they are.
GSC_HD int64_t *unchanged_count(const ApplyArgs &a) { return &a.step.record->unchanged; }

template <typename P>
GSC_HD P unscale_and_clip(P g, const StepInput &in, double clip_value) {
  g = unscale_gradient(g, static_cast<P>(in.inv_scale), static_cast<P>(in.clip));
  const P limit = static_cast<P>(clip_value);
  return is_clamped(limit) ? clamp_magnitude(g, limit) : g;
}
GSC_HD float prepare_float(float g, const StepInput &in, double clip_value) {
  return unscale_and_clip(g, in, clip_value);
}
GSC_HD double prepare_double(double g, const StepInput &in, double clip_value) {
  return unscale_and_clip(g, in, clip_value);
}

template <typename T>
GSC_HD void move_element(Variant variant, T &p, T (&state)[kMaxStates], T g, T ratio, const Coefficients<T> &c) {
  with_variant(variant, [&](auto formula) {
    using F = SweepOf<decltype(formula)>;
    if constexpr (kUpdatesLast<F>) {
      update_of<F>(p, state, g, c, ratio);
    } else {
      apply_of<F>(p, state, ratio, c);
    }
  });
}
/// The last sweep, or the only one, on an element.
GSC_HD void move_float(Variant variant, float &p, float (&state)[kMaxStates], float g, float ratio,
                       const Coefficients<float> &c) {
  move_element(variant, p, state, g, ratio, c);
}
GSC_HD void move_double(Variant variant, double &p, double (&state)[kMaxStates], double g, double ratio,
                        const Coefficients<double> &c) {
  move_element(variant, p, state, g, ratio, c);
}

template <typename T>
GSC_HD double first_sweep(Variant variant, T p, T (&state)[kMaxStates], T g, const Coefficients<T> &c) {
  return with_variant(variant, [&](auto formula) {
    using F = SweepOf<decltype(formula)>;
    if constexpr (kGradientsLast<F>) {
      return static_cast<double>(F::direction(p, g, c));
    } else if constexpr (kNeedsNorms<F>) {
      return static_cast<double>(F::moments(p, state, g, c));
    } else {
      return 0.0;
    }
  });
}
/// The first sweep of a formula that needs norms: the element's direction.
GSC_HD double direction_float(Variant variant, float p, float (&state)[kMaxStates], float g,
                              const Coefficients<float> &c) {
  return first_sweep(variant, p, state, g, c);
}
GSC_HD double direction_double(Variant variant, double p, double (&state)[kMaxStates], double g,
                               const Coefficients<double> &c) {
  return first_sweep(variant, p, state, g, c);
}

/// State slots with a number per element.
GSC_HD int32_t states_of(Variant variant) {
  return with_variant(variant, [](auto formula) { return int32_t{decltype(formula)::kStates}; });
}
/// Whether the formula averages the iterates of each tensor.
GSC_HD bool averages_iterates(Variant variant) {
  return with_variant(variant, [](auto formula) { return kAverages<decltype(formula)>; });
}

/// State slots that the last sweep stores, and those of the first sweep.
GSC_HD int32_t last_slots(Variant variant) {
  return with_variant(variant, [](auto formula) {
    using F = SweepOf<decltype(formula)>;
    if constexpr (kUpdatesLast<F>) return int32_t{F::kStates};
    return int32_t{0};
  });
}
GSC_HD int32_t first_slots(Variant variant) {
  return with_variant(variant, [](auto formula) {
    using F = SweepOf<decltype(formula)>;
    if constexpr (kGradientsLast<F>) return int32_t{0};
    return int32_t{F::kStates};
  });
}
GSC_HD bool reads_gradients_last(Variant variant) {
  return with_variant(variant, [](auto formula) {
    if constexpr (kUpdatesLast<SweepOf<decltype(formula)>>) return true;
    return false;
  });
}

/// False if the parameters alone move.
GSC_HD bool moves_state(const ApplyArgs &a) { return a.step.phase == Phase::kStep; }

/// The last sweep needs the tensor's ratio.
GSC_HD bool has_ratio(Variant variant) {
  return with_variant(variant, [](auto formula) {
    if constexpr (kNeedsNorms<SweepOf<decltype(formula)>>) return true;
    return false;
  });
}

GSC_HD float average_float(float average, float param, float weight) { return average_weight(average, param, weight); }
GSC_HD double average_double(double average, double param, double weight) {
  return average_weight(average, param, weight);
}

// State in codes, split masters and stochastic rounding.

GSC_HD float decode_slot(int32_t state_dtype, uint32_t code, uint32_t scale) {
  if (state_dtype == GSC_FP32) return from_bits(code);
  return with_state_code(state_dtype, [&](auto c) { return decltype(c)::decode(code, scale); });
}
GSC_HD int32_t smallness_of_slot(int32_t magnitude) { return smallness_of(magnitude); }
GSC_HD int32_t magnitude_of_slot(int32_t state_dtype, float x) {
  return is_grouped(state_dtype) ? magnitude_of_code(state_dtype, x) : 0;
}
GSC_HD uint32_t scale_of_slot(int32_t state_dtype, uint32_t largest, uint32_t smallness) {
  if (!is_grouped(state_dtype)) return 0;
  return with_state_code(state_dtype, [&](auto c) {
    using C = decltype(c);
    if constexpr (C::kGrouped) return C::scale_for(largest, smallness);
    return uint32_t{0};
  });
}
/// `random`: see random_bits. Not used if the slot is rounded to nearest.
GSC_HD uint32_t encode_slot(int32_t state_dtype, float x, uint32_t scale, uint32_t random, bool is_random) {
  if (state_dtype == GSC_FP32) return to_bits(x);
  return with_state_code(state_dtype, [&](auto c) {
    using C = decltype(c);
    const uint32_t own = C::kSlot == Slot::kMoment ? random >> 16 : random & 0xffffU;
    const uint32_t bias = is_random ? own : kToNearest;
    return static_cast<uint32_t>(static_cast<typename C::Stored>(C::encode(x, scale, bias)));
  });
}
GSC_HD bool slot_is_random(Variant variant, int32_t slot, int32_t dtype, const Coefficients<float> &c) {
  if (!is_state_code(dtype)) return false;
  const float rate = with_variant(variant, [&](auto formula) {
    using F = SweepOf<decltype(formula)>;
    if constexpr (F::kStates > 0) return F::rate(slot, c);
    return 1.0F;
  });
  return rounds_stochastically(rate);
}

/// The 16 random bits of an element, above them those for its means.
GSC_HD uint32_t random_bits(uint64_t seed, int64_t element, int64_t step, bool of_param) {
  const Philox x = philox(seed, element / kPhiloxElements, step, of_param ? Draw::kParam : Draw::kState);
  const auto i = static_cast<int>(element % kPhiloxElements);
  return x.of_element(i) | x.of_element(i ^ kMeanPartner) << 16;
}

/// The index of an element in stochastic rounding.
GSC_HD int64_t random_index(const ApplyArgs &a, const Place &place) {
  return a.step.offsets[place.tensor] + place.offset;
}

GSC_HD bool is_stochastic(int32_t master) { return master == GSC_MASTER_STOCHASTIC; }
/// `remainder` is sign-extended.
GSC_HD float join_master(int32_t dtype, int32_t master, uint32_t weight, int32_t remainder) {
  if (master == GSC_MASTER_SPLIT16) {
    return dtype == GSC_FP16 ? Split<Fp16, int16_t>::join(weight, remainder)
                             : Split<Bf16, int16_t>::join(weight, remainder);
  }
  return dtype == GSC_FP16 ? Split<Fp16, int8_t>::join(weight, remainder)
                           : Split<Bf16, int8_t>::join(weight, remainder);
}
template <typename D, typename R>
GSC_HD uint32_t divide_as(float x, uint32_t &remainder) {
  const auto parts = Split<D, R>::divide(x);
  remainder = parts.remainder;
  return parts.weight & 0xffffU;
}
/// The weight of a master; of `remainder` the lower bits count.
GSC_HD uint32_t divide_master(int32_t dtype, int32_t master, float x, uint32_t &remainder) {
  if (master == GSC_MASTER_SPLIT16) {
    if (dtype == GSC_FP16) return divide_as<Fp16, int16_t>(x, remainder);
    return divide_as<Bf16, int16_t>(x, remainder);
  }
  if (dtype == GSC_FP16) return divide_as<Fp16, int8_t>(x, remainder);
  return divide_as<Bf16, int8_t>(x, remainder);
}
GSC_HD uint32_t round_param(int32_t dtype, float x, uint32_t random) {
  const uint32_t weight =
      dtype == GSC_FP16 ? round_stochastically<Fp16>(x, random) : round_stochastically<Bf16>(x, random);
  return weight & 0xffffU;
}

// Element-wise operations, conversions and diagnoses.

GSC_HD ElementwiseRule resolve_rule(const ElementwiseArgs &a) { return resolve(a.op, a.a, a.b, a.factor, a.same); }
GSC_HD bool reads_src(const ElementwiseRule &rule) { return rule.op != Elementwise::kFill; }
GSC_HD bool reads_dst(const ElementwiseRule &rule) { return rule.op == Elementwise::kAxpby; }
template <typename T>
GSC_HD T compute_one(const ElementwiseRule &rule, T x, T y) {
  const T a = static_cast<T>(rule.a);
  const T b = static_cast<T>(rule.b);
  T result = a;
  with_operation(rule.op, [&](auto tag) { result = compute_element<decltype(tag)::kOp>(a, b, x, y); });
  return result;
}
GSC_HD float compute_float(const ElementwiseRule &rule, float x, float y) { return compute_one(rule, x, y); }
GSC_HD double compute_double(const ElementwiseRule &rule, double x, double y) { return compute_one(rule, x, y); }

GSC_HD double smallest_normal(int32_t dtype) {
  return with_dtype(dtype, [](auto d) { return decltype(d)::kSmallestNormal; });
}
inline constexpr uint64_t kDiagnosisBytes = sizeof(ChunkDiagnosis);
inline constexpr int32_t kExponentBins = GSC_EXPONENT_BINS;

}  // namespace gsc::vulkan
