// SPDX-License-Identifier: Apache-2.0
//
// Lists of many small tensors, where those that lie one after the other in memory are worked on together. Where tensors
// lie must not show: the same tensors packed, apart, and packed in some arrays with gaps in others give the same bits,
// with empty tensors, tensors of several chunks, two groups and two dtypes among them, and with an inf in any of them.
#include "tests/support/objects.h"

namespace gsc_test {
namespace {

enum class Gaps { kNone, kEverywhere, kHereAndThere };
using enum Gaps;

/// Tensors cut out of one arena.
class Arena {
 public:
  Arena(const std::vector<int64_t> &counts, const std::vector<int32_t> &dtypes, Gaps gaps, Random &random) {
    int64_t bytes = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      offsets_.push_back(bytes);
      const bool gap = gaps == kEverywhere || (gaps == kHereAndThere && random.below(4) == 0);
      bytes += counts[i] * dtype_size(dtypes[i]) + (gap ? dtype_size(dtypes[i]) : 0);
      // Where the dtype changes the next tensor must be aligned to it; elsewhere this changes nothing.
      if (i + 1 < counts.size()) bytes = (bytes + dtype_size(dtypes[i + 1]) - 1) & ~(dtype_size(dtypes[i + 1]) - 1);
    }
    memory_ = std::make_unique<Buffer>(GSC_FP64, bytes / 8 + 1);
    for (size_t i = 0; i < counts.size(); ++i) {
      tensors_.push_back(GSC_TENSOR_INIT(static_cast<char *>(memory_->data()) + offsets_[i], counts[i], dtypes[i]));
    }
  }

  const std::vector<gsc_tensor> &tensors() const { return tensors_; }
  void set(size_t tensor, int64_t element, double value) {
    const gsc_tensor &t = tensors_[tensor];
    store(static_cast<unsigned char *>(t.data) + element * dtype_size(t.dtype), value, t.dtype);
  }
  void fill(uint64_t seed, double limit = 9.0) {
    Random values(seed);
    for (size_t t = 0; t < tensors_.size(); ++t) {
      for (int64_t i = 0; i < tensors_[t].count; ++i) {
        set(t, i, round_to(values.uniform(-limit, limit), tensors_[t].dtype));
      }
    }
  }
  std::vector<Image> image() const {
    std::vector<Image> result;
    for (const gsc_tensor &t : tensors_) result.push_back(image_of(t));
    return result;
  }
  bool guards_intact() const { return memory_->guards_intact(); }

 private:
  std::vector<int64_t> offsets_;
  std::vector<gsc_tensor> tensors_;
  std::unique_ptr<Buffer> memory_;
};

/// An AdamW training whose arrays are cut with or without gaps.
struct Training {
  Training(int32_t threads, Gaps gaps, const std::vector<int64_t> &counts, const std::vector<int32_t> &grad_dtypes,
           Random layout)
      : context(make_context(threads)),
        fp32(counts.size(), GSC_FP32),
        grads(counts, grad_dtypes, gaps, layout),
        params(counts, fp32, gaps, layout),
        copies(counts, std::vector<int32_t>(counts.size(), GSC_FP16), gaps, layout),
        first(counts, fp32, gaps, layout),
        second(counts, fp32, gaps, layout) {
    gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
    optimizer = make_optimizer(context, options, param_list, grad_list, copy_list, {first_list, second_list});
    options.lr = 0.5;
    const auto size = std::ssize(counts);
    EXPECT_GSC_OK(gsc_optimizer_add_group(optimizer, size / 3, size / 3, &options, nullptr));
    params.fill(5, 1.0);
  }

  gsc_report step() {
    EXPECT_GSC_OK(gsc_scaler_check(scaler, grad_list, nullptr));
    EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, grad_list, 1.0, GSC_NORM_L2, nullptr));
    const gsc_report report = report_of(scaler, grad_list);
    EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler, optimizer, nullptr));
    for (const Arena *arena : {&grads, &params, &copies, &first, &second}) EXPECT_TRUE(arena->guards_intact());
    return report;
  }

  Context context;
  std::vector<int32_t> fp32;
  Arena grads, params, copies, first, second;
  List grad_list = make_list(context, grads.tensors()), param_list = make_list(context, params.tensors()),
       copy_list = make_list(context, copies.tensors()), first_list = make_list(context, first.tensors()),
       second_list = make_list(context, second.tensors());
  Scaler scaler = make_scaler(context, 256.0f);
  Optimizer optimizer;
};

void expect_same(Training &got, Training &expected) {
  const gsc_report a = got.step(), b = expected.step();
  EXPECT_TRUE(same_bytes(a, b)) << "norm " << a.grad_norm << " and " << b.grad_norm << ", first offender "
                                << a.first_tensor << ':' << a.first_element << " and " << b.first_tensor << ':'
                                << b.first_element;
  EXPECT_EQ(got.params.image(), expected.params.image());
  EXPECT_EQ(got.copies.image(), expected.copies.image());
  EXPECT_EQ(got.first.image(), expected.first.image());
  EXPECT_EQ(got.second.image(), expected.second.image());
}

/// Small, empty, around a row and a tile, and a few of more than one chunk.
std::vector<int64_t> some_counts(Random &random, int64_t size) {
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t kind = random.below(100);
    counts.push_back(kind < 8    ? 0
                     : kind < 12 ? 2040 + random.below(20)
                     : kind < 14 ? 16384 + random.below(40000)
                     : kind < 40 ? 60 + random.below(9)
                                 : 1 + random.below(300));
  }
  return counts;
}

TEST(Neighbours, DoNotShow) {
  Random random(77);
  for (int round = 0; round < 12; ++round) {
    const std::vector<int64_t> counts = some_counts(random, 30 + random.below(400));
    std::vector<int32_t> dtypes;
    const size_t run = 1 + random.below(60);
    for (size_t i = 0; i < counts.size(); ++i) {
      dtypes.push_back(round % 3 == 0 ? GSC_FP32 : kAllDtypes[(i / run + 2) % 4]);
    }
    for (const Gaps gaps : {kNone, kHereAndThere}) {
      for (const int32_t threads : {1, 3}) {
        SCOPED_TRACE(text("round ", round, ", gaps ", static_cast<int>(gaps), ", threads ", threads));
        Training apart(1, kEverywhere, counts, dtypes, Random(1));
        Training close(threads, gaps, counts, dtypes, Random(round));
        for (uint64_t step = 0; step < 3; ++step) {
          apart.grads.fill(step);
          close.grads.fill(step);
          if (step == 1) {  // skipped, and the first offender is found in the right tensor
            size_t tensor = 0;
            do {
              tensor = random.below(std::ssize(counts));
            } while (counts[tensor] == 0);
            const int64_t element = random.below(counts[tensor]);
            apart.grads.set(tensor, element, kInf);
            close.grads.set(tensor, element, kInf);
          }
          expect_same(close, apart);
        }
        EXPECT_EQ(applied_steps(close.optimizer), 2);
        if (HasFailure()) return;
      }
    }
  }
}

TEST(Neighbours, DoNotShowInOperations) {
  Random random(79);
  for (int round = 0; round < 6; ++round) {
    const std::vector<int64_t> counts = some_counts(random, 30 + random.below(300));
    const auto dtypes_of = [&] {
      const int64_t run = 1 + random.below(60), first = random.below(4);
      std::vector<int32_t> dtypes;
      for (int64_t i = 0; i < std::ssize(counts); ++i) dtypes.push_back(kAllDtypes[(i / run + first) % 4]);
      return dtypes;
    };
    const std::vector<int32_t> src_dtypes = dtypes_of(), dst_dtypes = dtypes_of();
    const auto results = [&](int32_t threads, Gaps src_gaps, Gaps dst_gaps) {
      const Context context = make_context(threads);
      Arena src(counts, src_dtypes, src_gaps, random), dst(counts, dst_dtypes, dst_gaps, random);
      src.fill(1);
      dst.fill(2);
      const gsc_tensor *from = src.tensors().data(), *to = dst.tensors().data();
      const auto size = std::ssize(counts);
      const float factor = 0.7f;
      EXPECT_GSC_OK(gsc_ops_axpby(context, 0.3, from, 0.6, to, size, nullptr));
      std::vector<std::vector<Image>> images = {dst.image()};
      EXPECT_GSC_OK(gsc_ops_scale(context, from, from, size, &factor, nullptr));
      images.push_back(src.image());
      EXPECT_GSC_OK(gsc_ops_cast(context, from, to, size, nullptr));
      images.push_back(dst.image());
      EXPECT_TRUE(src.guards_intact() && dst.guards_intact());
      return images;
    };
    const auto expected = results(1, kEverywhere, kEverywhere);
    for (const int32_t threads : {1, 3}) {
      EXPECT_EQ(results(threads, kNone, kNone), expected) << "round " << round;
      EXPECT_EQ(results(threads, kHereAndThere, kNone), expected) << "round " << round;
      EXPECT_EQ(results(threads, kNone, kHereAndThere), expected) << "round " << round;
    }
  }
}

TEST(Neighbours, MayBeMovedApart) {
  Random random(78);
  const std::vector<int64_t> counts = some_counts(random, 200);
  const std::vector<int32_t> dtypes(counts.size(), GSC_BF16);
  Training apart(1, kEverywhere, counts, dtypes, Random(1));
  Training moved(2, kNone, counts, dtypes, Random(2));
  Arena elsewhere(counts, dtypes, kHereAndThere, random);
  for (uint64_t step = 0; step < 2; ++step) {
    apart.grads.fill(step);
    moved.grads.fill(step);
    expect_same(moved, apart);
    std::vector<void *> data;
    for (const gsc_tensor &t : elsewhere.tensors()) data.push_back(t.data);
    ASSERT_GSC_OK(set_pointers(moved.grad_list, data));
    std::swap(moved.grads, elsewhere);
  }
}

}  // namespace
}  // namespace gsc_test
