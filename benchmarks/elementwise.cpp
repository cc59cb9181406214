// SPDX-License-Identifier: Apache-2.0
// Everything but the optimizers, by dtype and size on one flat tensor: what reads only against a plain read, what
// writes against a copy or a fill. Values stay what they are over any number of calls: unscaling alternates between scales 2 and
// 1/2, clipping to a norm undoes the doubling before it.
#include "measure.h"
#include "reference.h"
#include "training.h"
#include "workspace.h"

namespace bench {
namespace {

using enum DType;
using gradscaler::GradScaler;
using gradscaler::Norm;
using gradscaler::OptimizerKind;
using gradscaler::Tensor;
using gradscaler::TensorList;

constexpr DType kAllDtypes[] = {fp16, bf16, fp32, fp64};

struct Pair {
  DType src, dst;
};
constexpr Pair kCasts[] = {{fp32, fp16}, {fp32, bf16}, {fp16, fp32}, {bf16, fp32}, {fp64, fp32}, {fp32, fp32}};
constexpr Pair kAccumulations[] = {{fp16, fp32}, {bf16, fp32}, {fp32, fp32}, {fp16, fp16}, {bf16, bf16}, {fp64, fp64}};

std::string join(const char *op, DType dtype) { return std::string(op) + "/" + name_of(dtype); }
std::string join(const char *op, const Pair &pair) { return join(op, pair.src) + "_to_" + name_of(pair.dst); }

/// One flat tensor of point.bytes bytes with its list.
struct Flat {
  Flat(const Point &point, DType dtype)
      : workspace(Workspace::shared(point.bytes + 2 * Workspace::kSkewBytes, point.pages)),
        tensor(workspace.array(dtype, point.bytes / size_of(dtype), Fill::noise)),
        list(context(point.threads), tensor),
        bytes(point.bytes) {}

  Workspace workspace;
  Tensor tensor;
  TensorList list;
  double bytes;
};

/// A call that reads and writes the tensor, against a copy and a bare loop in place.
void measure_in_place(benchmark::State &state, const Point &point, const Contender &subject) {
  measure(state, {subject, copy_reference(point), loop_reference(point, 0, 1, true)});
}

void check(benchmark::State &state, const Point &point, DType dtype) {
  Flat flat(point, dtype);
  GradScaler scaler(context(point.threads));
  const auto call = [&] {
    scaler.check(flat.list);
    scaler.discard(flat.list);
  };
  measure(state, {contender("check", flat.bytes, call), read_reference(point)});
}

void unscale(benchmark::State &state, const Point &point, DType dtype) {
  Flat flat(point, dtype);
  GradScaler scaler(context(point.threads));
  float scale = 2.0F;
  const auto call = [&] {
    scale = 1.0F / scale;
    scaler.set_scale(scale);
    scaler.unscale(flat.list);
  };
  measure_in_place(state, point, contender("unscale", 2 * flat.bytes, call));
}

void scale(benchmark::State &state, const Point &point, DType dtype) {
  Flat flat(point, dtype);
  float factor = 2.0F;
  const auto call = [&] {
    factor = 1.0F / factor;
    gradscaler::ops::scale(context(point.threads), flat.tensor, flat.tensor, &factor);
  };
  measure_in_place(state, point, contender("scale", 2 * flat.bytes, call));
}

void zero(benchmark::State &state, const Point &point, DType dtype) {
  const Recipe sgd{"sgd", {.kind = OptimizerKind::sgd}, 0};
  const Training training(sgd, {"", dtype, dtype, std::nullopt}, point.bytes / size_of(dtype), point.pages);
  auto lists = training.lists_of(point.threads, {{point.bytes / size_of(dtype)}});
  const auto call = [&] { lists.optimizer.zero_grads(); };
  measure(state, {contender("zero", point.bytes, call), fill_reference(point)});
}

void norm(benchmark::State &state, const Point &point, DType dtype, Norm type) {
  Flat flat(point, dtype);
  double result = 0.0;
  const auto call = [&] { gradscaler::ops::norm(context(point.threads), flat.tensor, type, &result); };
  measure(state, {contender("norm", flat.bytes, call), read_reference(point)});
}

void clip(benchmark::State &state, const Point &point, DType dtype, bool by_norm) {
  Flat flat(point, dtype);
  GradScaler scaler(context(point.threads), {.init_scale = 0.5F});  // unscaling doubles
  scaler.check(flat.list);
  const double norm = scaler.get_report_sync(flat.list).grad_norm / 2;
  const auto prepare = [&] {
    scaler.discard(flat.list);
    scaler.unscale(flat.list);
  };
  const auto call = [&] { by_norm ? scaler.clip_grad_norm(flat.list, norm) : scaler.clip_grad_value(flat.list, 0.5); };
  measure_in_place(state, point, prepared_contender("clip", 2 * flat.bytes, prepare, call));
}

void diagnose(benchmark::State &state, const Point &point, DType dtype, bool histogram) {
  Flat flat(point, dtype);
  gsc_tensor_diagnosis diagnosis;
  std::vector<int64_t> bins(GSC_EXPONENT_BINS);
  const auto call = [&] {
    gsc_tensor_list_diagnose_sync(flat.list.get(), &diagnosis, histogram ? bins.data() : nullptr, 1, nullptr);
  };
  measure(state, {contender("diagnose", flat.bytes, call), read_reference(point)});
}

/// Two tensors of as many elements, point.bytes together.
struct TwoFlat {
  TwoFlat(const Point &point, const Pair &pair)
      : workspace(Workspace::shared(point.bytes + 3 * Workspace::kSkewBytes, point.pages)),
        count(point.bytes / (size_of(pair.src) + size_of(pair.dst))),
        src(workspace.array(pair.src, count, Fill::noise)),
        dst(workspace.array(pair.dst, count, Fill::noise)) {}

  Workspace workspace;
  int64_t count;
  Tensor src;
  Tensor dst;
};

template <typename F>
void measure_pair(benchmark::State &state, const Point &point, const Pair &pair, bool in_place, F call) {
  TwoFlat flat(point, pair);
  const double bytes = flat.count * (size_of(pair.src) + (in_place ? 2 : 1) * size_of(pair.dst));
  measure(state, {contender("pair", bytes, [&] { call(context(point.threads), flat.src, flat.dst); }),
                  copy_reference(point), loop_reference(point, size_of(pair.src), size_of(pair.dst), in_place)});
}

void cast(benchmark::State &state, const Point &point, const Pair &pair) {
  measure_pair(state, point, pair, false,
               [](auto &ctx, auto &src, auto &dst) { gradscaler::ops::cast(ctx, src, dst); });
}

void axpby(benchmark::State &state, const Point &point, const Pair &pair) {
  measure_pair(state, point, pair, true,
               [](auto &ctx, auto &src, auto &dst) { gradscaler::ops::axpby(ctx, 0.5, src, 0.5, dst); });
}

}  // namespace

void add_elementwise() {
  const auto add_each = [](const char *op, auto body, auto... arguments) {
    for (const DType dtype : kAllDtypes) add_sweep(join(op, dtype), bound(body, dtype, arguments...));
  };
  add_each("check", check);
  add_each("unscale", unscale);
  add_each("scale", scale);
  add_each("clip_norm", clip, true);
  add_each("clip_value", clip, false);
  add_each("norm", norm, Norm::l2);
  add_each("norm_inf", norm, Norm::inf);
  add_each("zero", zero);
  add_each("diagnose", diagnose, false);
  add_each("histogram", diagnose, true);
  for (const Pair &pair : kCasts) add_sweep(join("cast", pair), bound(cast, pair));
  for (const Pair &pair : kAccumulations) add_sweep(join("axpby", pair), bound(axpby, pair));
  for (const DType dtype : {fp16, bf16, fp32}) {
    add_huge(join("check", dtype), bound(check, dtype));
    add_huge(join("scale", dtype), bound(scale, dtype));
  }
}

}  // namespace bench
