// SPDX-License-Identifier: Apache-2.0
//
// Realistic lists: thousands of tensors of random sizes, so that a block has many rounds, teams of 1, 2, 4 and 8 warps,
// and an overflow in the middle. A step with clipping must give the CPU's bits. The emulation reports which teams were
// used; on a GPU the lists have a realistic size, 10^8 elements.
#include <algorithm>
#include <set>
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

class Shapes : public testing::TestWithParam<Shape> {};

gsc_optimizer_options options_of(int32_t kind = GSC_ADAMW, int32_t state_format = GSC_STATE_FULL) {
  gsc_optimizer_options options = optimizer_options(kind);
  options.lr = 0.01;
  options.state_format = state_format;
  return options;
}

/// Two steps on both sides, on what fill(grads, step) gives.
template <typename F>
void step_twice(Twins &params, Twins &grads, Twins &copies, const F &fill) {
  const Contexts contexts;
  const Side host(contexts.cpu, options_of(), host_tensors(params), host_tensors(grads), host_tensors(copies));
  const Side device(contexts.device, options_of(), device_tensors(params), device_tensors(grads),
                    device_tensors(copies));
  for (int step = 0; step < 2; ++step) {
    fill(grads, step);
    ASSERT_GSC_OK(host.step());
    ASSERT_GSC_OK(device.step());
    ASSERT_TRUE(same(params));
    ASSERT_TRUE(same(copies));
    expect_same_report(report_of(device.scaler, device.grads), report_of(host.scaler, host.grads));
  }
}

TEST_P(Shapes, SameBits) {
  SKIP_WITHOUT_DEVICE();
  const Shape &shape = GetParam();
  Twins params, grads, copies;
  Random random(5);
  for (int i = 0; i < shape.tensors; ++i) {
    const int64_t n = 1 + random.below(shape.largest);
    add_filled(params, random, shape.param_dtype, n, shape.misaligned);
    grads.emplace_back(shape.grad_dtype, n, shape.misaligned);
    if (shape.copy_dtype != 0) copies.emplace_back(shape.copy_dtype, n, shape.misaligned);
  }
  step_twice(params, grads, copies, [&](Twins &all, int step) {
    for (Twin &g : all) g.fill(kOrdinary, random);
    if (step == 1) all[all.size() / 2].fill(kWithInf, random);
  });
}

constexpr Shape kShapes[] = {
    {"tiny_fp16", GSC_FP16, GSC_FP32, GSC_FP16, 3000, 100, 0},
    {"tiny_fp32_misaligned", GSC_FP32, GSC_FP32, 0, 3000, 64, 1},
    {"small_bf16", GSC_BF16, GSC_FP32, GSC_BF16, 500, 3000, 0},
    {"middle_fp16_misaligned", GSC_FP16, GSC_FP32, 0, 60, 40000, 1},
    {"large_fp32", GSC_FP32, GSC_FP32, 0, 6, 200000, 0},
    {"mixed_fp64", GSC_FP64, GSC_FP64, GSC_FP16, 300, 5000, 0},
};
INSTANTIATE_TEST_SUITE_P(All, Shapes, testing::ValuesIn(kShapes), [](const auto &info) { return info.param.name; });

/// The tensor of a chunk needs a table although there are as many of one as of the other.
TEST(Chunks, AsManyAsTensors) {
  SKIP_WITHOUT_DEVICE();
  Twins params, grads, copies;
  Random random(6);
  for (const int64_t n : {0, 20000, 7}) {
    add_filled(params, random, GSC_FP32, n);
    grads.emplace_back(GSC_FP16, n);
  }
  step_twice(params, grads, copies, [&](Twins &all, int step) {
    for (Twin &g : all) g.fill(step == 1 ? kWithInf : kOrdinary, random);
  });
}

/// One-warp teams, and all blocks at the ticket at once: the last one must not join before the slowest warp of every
/// other has written. Sums differ from check to check, so that stale ones are noticed.
TEST(Ticket, WaitsForEveryWarp) {
  SKIP_WITHOUT_DEVICE();
  const Contexts contexts;
  Twins grads;
  Random random(23);
  for (int i = 0; i < 64; ++i) add_filled(grads, random, GSC_FP32, 1 + i % 7);
  const List host = make_list(contexts.cpu, host_tensors(grads)),
             device = make_list(contexts.device, device_tensors(grads));
  const Scaler host_scaler = make_scaler(contexts.cpu, 2.0F), device_scaler = make_scaler(contexts.device, 2.0F);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    for (const auto &[scaler, list] : {std::pair(&host_scaler, &host), {&device_scaler, &device}}) {
      ASSERT_GSC_OK(gsc_scaler_unscale(scaler->get(), list->get(), nullptr));  // halves the gradients
      ASSERT_GSC_OK(gsc_scaler_update(scaler->get(), nullptr));
    }
    const gsc_report want = report_of(host_scaler, host), got = report_of(device_scaler, device);
    ASSERT_EQ(got.grad_norm, want.grad_norm);
    ASSERT_EQ(got.grad_amax, want.grad_amax);
  }
}

#if defined(GSC_CUDA_EMULATION)
namespace emulation = gsc::cuda::emulation;

/// Lists of tensors within one allocation, and steps on them, some with an overflow.
class Steps {
 public:
  Steps(const Contexts &contexts, const std::vector<int64_t> &sizes, int32_t kind, int64_t misaligned, uint64_t seed,
        int32_t state_format = GSC_STATE_FULL)
      : random_(seed), tensors_(place(sizes, misaligned)), params_(GSC_FP32, end()), grads_(GSC_FP16, end()) {
    params_.fill(kOrdinary, random_);
    const gsc_optimizer_options options = options_of(kind, state_format);
    host_ = std::make_unique<Side>(contexts.cpu, options, parts(params_.host_tensor()), parts(grads_.host_tensor()));
    device_ =
        std::make_unique<Side>(contexts.device, options, parts(params_.device_tensor()), parts(grads_.device_tensor()));
  }
  void run(bool unscale, bool overflow) {
    grads_.fill(kOrdinary, random_);
    if (overflow) {
      grads_.host().set(tensors_[tensors_.size() / 2].first, kNan);
      grads_.upload();
    }
    for (Side *side : {host_.get(), device_.get()}) {
      if (unscale) {
        ASSERT_GSC_OK(gsc_scaler_unscale(side->scaler, side->grads, nullptr));
      }
      ASSERT_GSC_OK(side->step());
    }
    ASSERT_TRUE(params_.same());
    ASSERT_TRUE(grads_.same());
    expect_same_report(report_of(device_->scaler, device_->grads), report_of(host_->scaler, host_->grads));
  }

 private:
  using Parts = std::vector<std::pair<int64_t, int64_t>>;  // first element, number of elements

  static Parts place(const std::vector<int64_t> &sizes, int64_t misaligned) {
    Parts result;
    int64_t next = misaligned;
    for (const int64_t n : sizes) {
      result.emplace_back(next, n);
      next = (next + n + 15) / 16 * 16 + misaligned;
    }
    return result;
  }
  int64_t end() const { return tensors_.back().first + tensors_.back().second; }
  std::vector<gsc_tensor> parts(const gsc_tensor &whole) const {
    std::vector<gsc_tensor> result;
    for (const auto &[first, count] : tensors_) {
      result.push_back(
          GSC_TENSOR_INIT(static_cast<char *>(whole.data) + first * dtype_size(whole.dtype), count, whole.dtype));
    }
    return result;
  }

  Random random_;
  Parts tensors_;
  Twin params_, grads_;
  std::unique_ptr<Side> host_, device_;
};

/// Forces one team size for all launches, whatever the backend would choose, and for larger ones parts of chunks.
class Teams : public testing::TestWithParam<std::tuple<int, int32_t, int32_t>> {
 protected:
  void SetUp() override {
    const int warps = std::get<0>(GetParam());
    emulation::set_team(warps, warps >= 4 ? 2 : 0);
  }
  void TearDown() override { emulation::set_team(0); }
};

/// Small tensors for many rounds, one of several chunks with a short last one, misaligned ones, and the three kernels
/// that have teams: check, unscale, the step, and with LAMB the moments sweep.
TEST_P(Teams, SameBitsInSeveralRounds) {
  const auto &[warps, kind, state_format] = GetParam();
  const Contexts contexts;
  Random random(41);  // of sizes
  // A grid has four blocks of eight warps for each multiprocessor at most, in all kernels.
  const int most_teams = emulation::multiprocessor_count() * 32 / warps;
  std::vector<int64_t> sizes(std::max(100, 2 * most_teams));
  for (int64_t &n : sizes) n = 1 + random.below(40);
  sizes[3] = 16384 + 5000;
  sizes[40] = 9000;
  for (const int64_t misaligned : {0, 1}) {
    SCOPED_TRACE(misaligned);
    Steps steps(contexts, sizes, kind, misaligned, 42, state_format);
    emulation::take_walks();
    for (const bool overflow : {false, true}) steps.run(misaligned != 0, overflow);
    const std::vector<emulation::Walk> walks = emulation::take_walks();
    ASSERT_GE(walks.size(), kind == GSC_LAMB ? 5U : 4U);
    for (const emulation::Walk &walk : walks) {
      EXPECT_EQ(walk.warps, warps);
      EXPECT_GE(walk.rounds(), 2);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Teams,
                         testing::Combine(testing::Values(1, 2, 4, 8), testing::Values(GSC_ADAMW, GSC_LAMB),
                                          testing::Values(GSC_STATE_FULL, GSC_STATE_BITS8)),
                         [](const auto &info) {
                           return std::to_string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) == GSC_LAMB ? "_lamb" : "_adamw") +
                                  (std::get<2>(info.param) == GSC_STATE_BITS8 ? "_in_codes" : "");
                         });

/// From few tensors per multiprocessor to many, the backend chooses each team size at some point.
TEST(ChosenTeams, AreOfEverySize) {
  const Contexts contexts;
  std::set<int> seen;
  int64_t most_rounds = 0;
  for (const int per_multiprocessor : {2, 8, 16, 36, 64}) {
    const std::vector<int64_t> sizes(per_multiprocessor * emulation::multiprocessor_count(), 1024);
    Steps steps(contexts, sizes, GSC_SGD, 0, 43);
    emulation::take_walks();
    steps.run(false, false);
    for (const emulation::Walk &walk : emulation::take_walks()) {
      seen.insert(walk.warps);
      most_rounds = std::max(most_rounds, walk.rounds());
    }
  }
  EXPECT_EQ(seen, (std::set<int>{1, 2, 4, 8}));
  EXPECT_GE(most_rounds, 2);
}
#endif

/// Random bit patterns of magnitude below 2, including subnormals and values whose squares underflow.
void fill_bits(Twin &twin, Random &random) {
  const int32_t dtype = twin.host().dtype();
  const uint64_t finite = dtype == GSC_FP32 ? 0xbfffffffbfffffffU : 0xbfffbfffbfffbfffU;  // no highest bit of exponent
  auto *bytes = twin.host().as<char>();
  for (int64_t i = 0; i < twin.host().bytes(); i += 8) {
    const uint64_t word = random.bits() & finite;
    std::memcpy(bytes + i, &word, std::min<int64_t>(8, twin.host().bytes() - i));
  }
  twin.upload();
}

class RandomBits : public testing::TestWithParam<int32_t> {};

/// Thousands of small tensors and some large ones, of random bits: two steps, the second on the results of the first.
TEST_P(RandomBits, SameBits) {
  SKIP_WITHOUT_DEVICE();
#if defined(GSC_CUDA_EMULATION) || defined(GSC_TEST_VULKAN)
  constexpr int64_t kElements = 100'000;
#else
  constexpr int64_t kElements = 100'000'000;
#endif
  Twins params, grads, copies;
  Random random(GetParam());
  for (int64_t left = kElements; left > 0; left -= params.back().host().count()) {
    // Nine in ten are small, and hold a small part of the elements.
    const int64_t most = random.below(10) != 0 ? 300 : std::max<int64_t>(kElements / 30, 1000);
    const int64_t n = 1 + random.below(most);
    const int64_t misaligned = random.below(4) == 0 ? 1 : 0;
    params.emplace_back(GSC_FP32, n, misaligned);
    grads.emplace_back(GetParam(), n, misaligned);
    copies.emplace_back(GSC_BF16, n, misaligned);
    fill_bits(params.back(), random);
  }
  step_twice(params, grads, copies, [&](Twins &all, int) {
    for (Twin &g : all) fill_bits(g, random);
  });
}

INSTANTIATE_TEST_SUITE_P(All, RandomBits, testing::Values(GSC_FP16, GSC_BF16, GSC_FP32),
                         [](const auto &info) { return dtype_name(info.param); });

}  // namespace
}  // namespace gsc_test
