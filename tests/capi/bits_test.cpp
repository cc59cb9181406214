// SPDX-License-Identifier: Apache-2.0
//
// The same bits from run to run, from 1, 3 or 8 threads, the caller's parallel-for in any order, and every instruction
// set that this machine has. One script calls every operation of the ABI and keeps a hash of each result's bytes in a
// transcript; the transcripts must be equal.
#include <map>
#include <span>

#include "tests/support/kinds.h"
#include "tests/support/repetition.h"
#include "tests/support/state_slots.h"
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

/// Names of results and hashes of their bytes.
using Transcript = std::vector<std::pair<std::string, uint64_t>>;

uint64_t hash_of(const void *bytes, int64_t size) {
  uint64_t hash = 0xcbf29ce484222325ull;
  const unsigned char *at = static_cast<const unsigned char *>(bytes);
  for (; size > 0; at += 8, size -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, std::min<int64_t>(size, 8));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

// Large enough for several tasks of several chunks, with tails, tiny and empty tensors between. The long form has eight
// tasks.
const bool kShort = kSanitized || !long_form();
const std::vector<int64_t> kCounts = {kShort ? 65537 : 131073, 3, 0, 4097, 1, kShort ? 32768 : 131072, 999};
const std::vector<int32_t> kGradDtypes = {GSC_FP16, GSC_FP64, GSC_BF16, GSC_FP32};

/// Random buffers, made once for each dtype and seed: making them costs more than what is tested.
std::vector<Buffer> random_buffers(const std::vector<int32_t> &dtypes, uint64_t seed, double magnitude,
                                   double factor = 1.0) {
  static std::map<std::pair<std::vector<int32_t>, uint64_t>, std::vector<Image>> cache;
  std::vector<Image> &images = cache[{dtypes, seed}];
  std::vector<Buffer> buffers;
  for (size_t i = 0; i < kCounts.size(); ++i) {
    buffers.emplace_back(dtypes[i % dtypes.size()], kCounts[i], seed % 3);
  }
  if (images.empty()) {
    Random random(seed);
    for (Buffer &buffer : buffers) {
      for (int64_t i = 0; i < buffer.count(); ++i) {
        buffer.set(i, round_to(random.uniform(-magnitude, magnitude), buffer.dtype()) * factor);
      }
      images.push_back(buffer.image());
    }
  }
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].restore(images[i]);
  return buffers;
}

/// A range that many parameters leave, and the flags for cautious steps.
void restrain(gsc_optimizer_options &options) {
  options.param_min = -0.25;
  options.param_max = 0.125;
  options.flags |= kind_of(options.kind).flags & (GSC_OPTIMIZER_CAUTIOUS | GSC_OPTIMIZER_CAUTIOUS_DECAY);
}

class Script {
 public:
  explicit Script(const Context &context) : context_(context) {}

  Transcript run() {
    for (const int32_t dtype : kAllDtypes) {
      stateless(dtype);
      norms_and_diagnosis(dtype);
    }
    for (const int32_t kind : optimizer_kinds()) {
      for (const int32_t dtype : {GSC_FP32, GSC_FP64, GSC_FP16, GSC_BF16}) training(kind, dtype);
      const int32_t dtype = kind % 2 == 0 ? GSC_FP16 : GSC_BF16, other = kind % 2 == 0 ? GSC_BF16 : GSC_FP16;
      training(kind, dtype, GSC_STATE_BITS16, GSC_MASTER_SPLIT16);
      training(kind, other, GSC_STATE_BITS8, GSC_MASTER_SPLIT16);
      training(kind, dtype, GSC_STATE_BITS8, GSC_MASTER_SPLIT8);
      training(kind, other, GSC_STATE_BITS8, GSC_MASTER_STOCHASTIC);
      if (is_schedule_free(kind)) continue;
      for (const int32_t param : {GSC_FP32, GSC_FP64, GSC_FP16})
        training(kind, param, GSC_STATE_FULL, GSC_MASTER_NONE, true);
      training(kind, dtype, GSC_STATE_BITS8, GSC_MASTER_SPLIT16, true);
    }
    return std::move(transcript_);
  }

 private:
  void record(const std::string &what, const void *bytes, int64_t size) {
    transcript_.emplace_back(what, hash_of(bytes, size));
  }
  void record(const std::string &what, const gsc_report &report) { record(what, &report, sizeof report); }
  void record(const std::string &what, const std::vector<Buffer> &buffers) { record(what, images_of(buffers)); }
  void record(const std::string &what, const std::vector<Image> &images) {
    for (const auto &image : images) record(what, image.data(), std::ssize(image));
  }

  void stateless(int32_t dtype) {
    const std::string name = dtype_name(dtype);
    std::vector<Buffer> src = random_buffers({dtype}, 1, 4.0);
    const std::vector<gsc_tensor> s = tensors_of(src);
    const int64_t count = std::ssize(src);
    for (const int32_t other : kAllDtypes) {
      std::vector<Buffer> dst = random_buffers({other}, 2, 4.0);
      const std::vector<gsc_tensor> d = tensors_of(dst);
      const float factor = 1.3f;
      EXPECT_GSC_OK(gsc_ops_axpby(context_, 0.3, s.data(), 0.7, d.data(), count, nullptr));
      record(text("axpby ", name), dst);
      EXPECT_GSC_OK(gsc_ops_scale(context_, s.data(), d.data(), count, &factor, nullptr));
      record(text("scale ", name), dst);
      EXPECT_GSC_OK(gsc_ops_cast(context_, s.data(), d.data(), count, nullptr));
      record(text("cast ", name), dst);
    }
    const float inverse = 1.0f / 3.0f;
    float found_inf = 0.0f;
    EXPECT_GSC_OK(gsc_ops_unscale_check(context_, s.data(), count, &found_inf, &inverse, nullptr));
    record(text("unscale_check ", name), src);
  }

  void norms_and_diagnosis(int32_t dtype) {
    std::vector<Buffer> buffers = random_buffers({dtype}, 5, 4.0);
    const int64_t count = std::ssize(buffers);
    const List list = make_list(context_, buffers);
    const Scaler scaler = make_scaler(context_, 3.0f);
    for (const bool overflow : {false, true}) {
      if (overflow) {
        buffers[3].set(4096, kInf);
        buffers[5].set(30000, kNan);
      }
      for (const int32_t type : {GSC_NORM_L2, GSC_NORM_INF}) {
        double norms[8] = {};
        EXPECT_GSC_OK(gsc_ops_norm(context_, tensors_of(buffers).data(), count, type, norms, norms + 1, nullptr));
        record(text("norm ", type), norms, sizeof norms);
      }
      std::vector<gsc_tensor_diagnosis> diagnosis(buffers.size());
      std::vector<int64_t> histogram(buffers.size() * GSC_EXPONENT_BINS);
      EXPECT_GSC_OK(gsc_tensor_list_diagnose_sync(list, diagnosis.data(), histogram.data(), count, nullptr));
      record("diagnosis", diagnosis.data(), diagnosis.size() * sizeof diagnosis[0]);
      record("histogram", histogram.data(), histogram.size() * sizeof histogram[0]);
      EXPECT_GSC_OK(gsc_scaler_check(scaler, list, nullptr));
      record("check", report_of(scaler, list));
      EXPECT_GSC_OK(gsc_scaler_discard(scaler, nullptr));
    }
    std::vector<Buffer> grads = random_buffers({dtype}, 6, 4.0);
    const List fresh = make_list(context_, grads);
    EXPECT_GSC_OK(gsc_scaler_unscale(scaler, fresh, nullptr));
    record("unscale report", report_of(scaler, fresh));
    record("unscale", grads);
    EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, fresh, 1.0, GSC_NORM_L2, nullptr));
    EXPECT_GSC_OK(gsc_scaler_clip_grad_value(scaler, fresh, 0.002, nullptr));
    record("clip", grads);
  }

  void training(int32_t kind, int32_t param_dtype, int32_t state_format = GSC_STATE_FULL,
                int32_t master_format = GSC_MASTER_NONE, bool is_restrained = false) {
    gsc_optimizer_options options = optimizer_options(kind);
    options.weight_decay = 0.01;
    options.flags = GSC_OPTIMIZER_WRITE_GRADS | GSC_OPTIMIZER_COUNT_UNCHANGED;
    if (is_restrained) restrain(options);
    options.state_format = state_format;
    options.master_format = master_format;
    options.seed = 5;
    options.ema_decay = 0.75;
    if (kind == GSC_SGD) options.momentum = 0.9;
    Trainer trainer(context_, {.options = options,
                               .counts = kCounts,
                               .param_dtype = param_dtype,
                               .grad_dtypes = kGradDtypes,
                               .copy_dtype = master_format == GSC_MASTER_NONE ? GSC_BF16 : 0,
                               .offset = 1});
    const Scaler scaler = make_scaler(context_, 300.0f);
    for (uint64_t step = 0; step < 3; ++step) {
      const std::vector<Buffer> grads = random_buffers(kGradDtypes, 10 + step, 1.0, 300.0);
      for (size_t i = 0; i < grads.size(); ++i) trainer.grads()[i].restore(grads[i].image());
      if (step == 1) trainer.grads()[0].set(kCounts[0] - 1, kInf);
      EXPECT_GSC_OK(gsc_scaler_clip_grad_norm(scaler, trainer.grad_list(), 5.0, GSC_NORM_L2, nullptr));
      EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler, trainer, nullptr));
    }
    EXPECT_TRUE(trainer.guards_intact());
    const Snapshot snapshot = trainer.snapshot();
    const std::string name = text("kind ", kind, " ", dtype_name(param_dtype), " state ", state_format, " master ",
                                  master_format, is_restrained ? " restrained" : "");
    record(text(name, " params"), snapshot.params);
    const Image state = Slots(trainer).image();
    record(text(name, " state"), state.data(), std::ssize(state));
    record(text(name, " model copy"), snapshot.copies);
    record(text(name, " grads"), snapshot.grads);
    int64_t unchanged = -1;
    EXPECT_GSC_OK(gsc_optimizer_get_unchanged_sync(trainer, &unchanged, nullptr));
    record(text(name, " unchanged"), &unchanged, sizeof unchanged);
    record(text(name, " report"), report_of(scaler, trainer.grad_list()));
  }

  const Context &context_;
  Transcript transcript_;
};

void expect_equal(const Transcript &got, const Transcript &expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].first, expected[i].first);
    ASSERT_TRUE(got[i].second == expected[i].second) << "entry " << i << ": " << got[i].first;
  }
}

/// One number for a transcript, printed for scripts/platforms, which compares systems and processors by it.
void print_digest(int32_t target, const Transcript &transcript) {
  const char *const names[] = {"best", "baseline", "avx2", "avx512", "neon_bf16"};
  std::vector<uint64_t> hashes;
  for (const auto &entry : transcript) hashes.push_back(entry.second);
  std::printf("digest %016llx %s\n", static_cast<unsigned long long>(hash_of(hashes.data(), 8 * hashes.size())),
              names[target]);
}

const Transcript &reference() {
  static const Transcript transcript = Script(make_context(1, GSC_CPU_BASELINE)).run();
  return transcript;
}

TEST(Bits, EveryThreadCount) {
  for (const int32_t threads : kSanitized ? std::vector{3} : std::vector{1, 3, 8}) {
    SCOPED_TRACE(threads);
    const Context context = make_context(threads, GSC_CPU_BASELINE);
    expect_equal(Script(context).run(), reference());
  }
}

TEST(Bits, EveryInstructionSet) {
  for (const int32_t target : usable_cpu_targets()) {
    if (kSanitized && target == GSC_CPU_BASELINE) continue;  // the reference
    SCOPED_TRACE(text("target ", target));
    const Context context = make_context(2, target);
    const Transcript transcript = Script(context).run();
    expect_equal(transcript, reference());
    print_digest(target, transcript);
  }
}

/// NaN in codes and weights, one in an element, all positive: which sign a NaN of two has is the compiler's choice. All
/// their bits are set, so that rounding a NaN as a number shows. The second group has codes and a scale of 0.
void plant_special(Trainer &trainer) {
  const Slots slots(trainer);
  for (size_t t = 0; t < trainer.params().size(); ++t) {
    const int64_t count = trainer.params()[t].count();
    for (size_t slot = 0; slot < slots.slots.size(); ++slot) {
      const gsc_tensor &codes = slots.slots[slot][t];
      const int64_t width = gsc::dtype_bytes(codes.dtype);
      auto *const bytes = static_cast<unsigned char *>(codes.data);
      const std::map<int32_t, uint16_t> nans = {
          {GSC_FP8_E4M3, 0x7f}, {GSC_UINT8_LOG, 0xff}, {GSC_BF16, 0x7fff}, {GSC_UFP16_E6M10, 0xffff}};
      if (!nans.contains(codes.dtype)) continue;  // remainders
      for (int64_t i = 97 * slot; i < count; i += 97 * 4) {
        std::memcpy(bytes + i * width, &nans.at(codes.dtype), width);
      }
      if (codes.scale == nullptr || count <= 64) continue;
      const int64_t scale_bytes = gsc::dtype_bytes(codes.scale_dtype);
      std::memset(static_cast<char *>(const_cast<void *>(codes.scale)) + scale_bytes, 0, scale_bytes);
      std::memset(bytes + 32 * width, 0x35, 32 * width);
    }
    Buffer &param = trainer.params()[t];
    for (int64_t i = 97 * 3; i < count; i += 97 * 4) {
      if (param.dtype() == GSC_FP32) {
        param.as<uint32_t>()[i] = 0x7fffffff;
      } else {
        param.as<uint16_t>()[i] = 0x7fff;
      }
    }
  }
}

/// Weights and gradients of one dtype, for which processors with AVX-512 have separate kernels.
TEST(Bits, StepsInRegistersOfEveryInstructionSet) {
  struct Betas {
    double beta1, beta2;
    bool is_restrained = false;
  };
  // Both moments stochastic, either of them to nearest, and the first in 16 bits in all formats.
  constexpr Betas kBetas[] = {{0.9, 0.999}, {0.0, 0.999}, {0.5, 0.0}, {0.999, 0.9999}, {0.9, 0.999, true}};
  const auto images = [](const Context &context, int32_t state, int32_t master, int32_t dtype, const Betas &betas) {
    std::vector<Image> result;
    for (const int32_t kind : {GSC_SGD, GSC_ADAM, GSC_ADAMW, GSC_LION}) {
      gsc_optimizer_options options = optimizer_options(kind);
      options.state_format = state;
      options.master_format = master;
      options.lr = 0.01;
      options.weight_decay = 0.1;
      if (uses(kind, gsc::Option::beta1)) options.beta1 = betas.beta1;
      if (uses(kind, gsc::Option::beta2)) options.beta2 = betas.beta2;
      if (uses(kind, gsc::Option::momentum)) options.momentum = 0.9;
      options.seed = 0x123456789abcdef;
      if (betas.is_restrained) restrain(options);
      Trainer trainer(context, {.options = options,
                                .counts = {1, 31, 33, 1000, 0, 17000, 64},
                                .param_dtype = dtype,
                                .grad_dtypes = {dtype},
                                .offset = 3});
      if (state != GSC_STATE_FULL) plant_special(trainer);
      const Scaler scaler = make_scaler(context, 1024.0f);
      Random random(7);
      for (int step = 0; step < 4; ++step) {
        trainer.fill_grads(random, std::ldexp(1.0, -8 * step), 1024.0);
        if (step == 2) trainer.grads()[5].set(5, kInf);
        EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler, trainer, nullptr));
      }
      EXPECT_TRUE(trainer.guards_intact());
      for (const Buffer &param : trainer.params()) result.push_back(param.image());
      result.push_back(Slots(trainer).image());
    }
    return result;
  };
  const Context baseline = make_context(1, GSC_CPU_BASELINE);
  for (const int32_t state : {GSC_STATE_FULL, GSC_STATE_BITS16, GSC_STATE_BITS8}) {
    for (const int32_t master : {GSC_MASTER_NONE, GSC_MASTER_SPLIT16, GSC_MASTER_SPLIT8, GSC_MASTER_STOCHASTIC}) {
      for (const int32_t dtype : {GSC_FP16, GSC_BF16, GSC_FP32}) {
        if ((dtype == GSC_FP32) != (master == GSC_MASTER_NONE)) continue;  // 16-bit weights alone have other masters
        for (const Betas &betas : kBetas) {
          const auto expected = images(baseline, state, master, dtype, betas);
          for (const int32_t target : usable_cpu_targets()) {
            SCOPED_TRACE(text("target ", target, " state ", state, " master ", master, " dtype ", dtype, " betas ",
                              betas.beta1, ' ', betas.beta2, betas.is_restrained ? " restrained" : ""));
            ASSERT_TRUE(images(make_context(2, target), state, master, dtype, betas) == expected);
          }
        }
      }
    }
  }
}

TEST(Bits, TheCallersParallelFor) {
  const gsc_parallel_for_fn forward = [](void *user, int32_t count, gsc_task_fn body, void *argument) {
    ++*static_cast<int *>(user);
    for (int32_t i = 0; i < count; ++i) body(argument, i);
  };
  const gsc_parallel_for_fn backward = [](void *user, int32_t count, gsc_task_fn body, void *argument) {
    ++*static_cast<int *>(user);
    for (int32_t i = count - 1; i >= 0; --i) body(argument, i);
  };
  const gsc_parallel_for_fn threaded = [](void *user, int32_t count, gsc_task_fn body, void *argument) {
    ++*static_cast<int *>(user);
    on_threads(count, [=](int32_t i) { body(argument, i); });
  };
  struct Way {
    gsc_parallel_for_fn parallel_for;
    int32_t pieces;
  };
  const std::vector<Way> ways = {{threaded, 8}, {backward, 5}, {forward, 2}};
  for (const Way &way : std::span(ways).first(kSanitized ? 1 : ways.size())) {
    int calls = 0;
    const Context context = make_context(way.parallel_for, &calls, way.pieces);
    expect_equal(Script(context).run(), reference());
    EXPECT_GT(calls, 0);
  }
}

}  // namespace
}  // namespace gsc_test
