// SPDX-License-Identifier: Apache-2.0
//
// Lists as hardware will see them: thousands of tensors of random sizes, so that a block has many rounds, teams of 1, 2,
// 4 and 8 warps, and an overflow in the middle. A fused step with clipping must leave the bits that the CPU leaves.
#include <tuple>

#include "tests/cuda/twin.h"

namespace gsc_test {
namespace {

struct Shape {
  const char *name;
  int32_t grad_dtype;
  int32_t param_dtype;
  int32_t copy_dtype;  ///< 0: none
  int tensors;
  int64_t largest;  ///< elements of a tensor, at most
  int64_t misaligned;
};

class Shapes : public ::testing::TestWithParam<Shape> {};

/// One side of the comparison: the library's objects over either memory.
struct Side {
  Side(const Context &context, const std::vector<gsc_tensor> &param_tensors,
       const std::vector<gsc_tensor> &grad_tensors, const std::vector<gsc_tensor> &copy_tensors)
      : params(make_list(context, param_tensors)), grads(make_list(context, grad_tensors)) {
    if (!copy_tensors.empty()) copies = make_list(context, copy_tensors);
    gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
    options.lr = 0.01;
    optimizer = make_optimizer(context, options, params, grads, copies);
    scaler = make_scaler(context, scaler_options(1024.0F, 3));
  }

  void step() {
    ASSERT_GSC_OK(gsc_scaler_clip_grad_norm(scaler.get(), grads.get(), 0.5, GSC_NORM_L2, nullptr));
    ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler.get(), optimizer.get(), nullptr));
  }

  List params;
  List grads;
  List copies;
  Optimizer optimizer;
  Scaler scaler;
};

TEST_P(Shapes, SameBits) {
  const Shape &shape = GetParam();
  const Contexts contexts;
  Twins params, grads, copies;
  Random random(5);
  for (int i = 0; i < shape.tensors; ++i) {
    const int64_t n = 1 + static_cast<int64_t>(random.below(static_cast<uint64_t>(shape.largest)));
    params.emplace_back(shape.param_dtype, n, shape.misaligned);
    params.back().fill(Values::kOrdinary, random);
    grads.emplace_back(shape.grad_dtype, n, shape.misaligned);
    if (shape.copy_dtype != 0) copies.emplace_back(shape.copy_dtype, n, shape.misaligned);
  }
  Side host(contexts.cpu, host_tensors(params), host_tensors(grads), host_tensors(copies));
  Side device(contexts.cuda, device_tensors(params), device_tensors(grads), device_tensors(copies));
  for (const bool overflow : {false, true}) {
    for (Twin &g : grads) g.fill(Values::kOrdinary, random);
    if (overflow) grads[grads.size() / 2].fill(Values::kWithInf, random);
    host.step();
    device.step();
    for (const Twin &t : params) ASSERT_TRUE(t.same());
    for (const Twin &t : copies) ASSERT_TRUE(t.same());
    expect_same_report(report_of(device.scaler, device.grads.get()), report_of(host.scaler, host.grads.get()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Shapes,
                         ::testing::Values(Shape{"tiny_fp16", GSC_FP16, GSC_FP32, GSC_FP16, 3000, 100, 0},
                                           Shape{"tiny_fp32_misaligned", GSC_FP32, GSC_FP32, 0, 3000, 64, 1},
                                           Shape{"small_bf16", GSC_BF16, GSC_FP32, GSC_BF16, 500, 3000, 0},
                                           Shape{"middle_fp16_misaligned", GSC_FP16, GSC_FP32, 0, 60, 40000, 1},
                                           Shape{"large_fp32", GSC_FP32, GSC_FP32, 0, 6, 200000, 0},
                                           Shape{"mixed_fp64", GSC_FP64, GSC_FP64, GSC_FP16, 300, 5000, 0}),
                         [](const auto &info) { return info.param.name; });

/// A team for each warp, and all blocks at the ticket at once: the last one must not join before the slowest warp of any
/// other has written. Every check has other sums than the one before, so that an old one is noticed.
TEST(Ticket, WaitsForEveryWarp) {
  const Contexts contexts;
  Twins grads;
  Random random(23);
  for (int i = 0; i < 64; ++i) {
    grads.emplace_back(GSC_FP32, 1 + i % 7);
    grads.back().fill(Values::kOrdinary, random);
  }
  const List host = make_list(contexts.cpu, host_tensors(grads)),
             device = make_list(contexts.cuda, device_tensors(grads));
  const Scaler host_scaler = make_scaler(contexts.cpu, 2.0F), device_scaler = make_scaler(contexts.cuda, 2.0F);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    for (const auto &[scaler, list] : {std::pair(&host_scaler, &host), {&device_scaler, &device}}) {
      ASSERT_GSC_OK(gsc_scaler_unscale(scaler->get(), list->get(), nullptr));  // halves the gradients
      ASSERT_GSC_OK(gsc_scaler_update(scaler->get(), nullptr));
    }
    const gsc_report want = report_of(host_scaler, host.get()), got = report_of(device_scaler, device.get());
    ASSERT_EQ(got.grad_norm, want.grad_norm);
    ASSERT_EQ(got.grad_amax, want.grad_amax);
  }
}

}  // namespace
}  // namespace gsc_test
