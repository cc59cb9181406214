// SPDX-License-Identifier: Apache-2.0
//
// Shared by the tests of failing calls: the objects that operations work on, counted by separate allocators, and
// the operations themselves, a table (failing_operations.cpp) that failing_calls_test.cpp walks through.
#ifndef GRADSCALER_TESTS_CUDA_FAILING_WORLD_H
#define GRADSCALER_TESTS_CUDA_FAILING_WORLD_H
#include <functional>
#include <span>

#include "tests/cuda/training.h"

namespace gsc_test {
/// Live host allocations, counted by the context's own allocator.
inline int64_t host_blocks = 0;
inline void *allocate_counted(void *, int64_t bytes, int64_t alignment) {
  ++host_blocks;
  return std::aligned_alloc(static_cast<size_t>(alignment),
                            static_cast<size_t>((bytes + alignment - 1) / alignment * alignment));
}
inline void release_counted(void *, void *memory, int64_t, int64_t) {
  --host_blocks;
  std::free(memory);
}

inline gsc_context_options counted_options() {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = GSC_DEVICE_CUDA;
  options.allocate = allocate_counted;
  options.release = release_counted;
  return options;
}

inline Context make_counted_context() {
  const gsc_context_options options = counted_options();
  gsc_context *context = nullptr;
  EXPECT_GSC_OK(gsc_context_create(&options, &context));
  return Context(context);
}

/// Everything that exists and must be unchanged at the end.
struct Inventory {
  int64_t host = host_blocks;
  int64_t bytes = emulation::bytes_in_use();
  int64_t objects = emulation::objects_in_use();
  int references = emulation::reference_count(emulation::primary_context(0));
  bool operator==(const Inventory &) const = default;
};
inline void PrintTo(const Inventory &i, std::ostream *out) {
  *out << i.host << " host blocks, " << i.bytes << " bytes on devices, " << i.objects << " objects, " << i.references
       << " references";
}

/// What the operations work on. The second list belongs to another context, but to the same scaler.
struct World {
  World()
      : context(make_counted_context()),
        other(make_counted_context()),
        training(context, 2, 300),
        away(other, 2, 300),
        x(GSC_FP32, 300),
        y(GSC_FP16, 300),
        z(GSC_FP64, 300),
        word(0.5f),
        inverse(0.5f),
        sums(0.0) {
    Random random(7);
    x.fill(Values::kOrdinary, random);
    y.fill(Values::kOrdinary, random);
    z.fill(Values::kOrdinary, random);
    EXPECT_GSC_OK(gsc_optimizer_get_save_size(optimizer(), &saved_bytes));
    saved.resize(static_cast<size_t>(saved_bytes));
    EXPECT_GSC_OK(gsc_optimizer_save_sync(optimizer(), saved.data(), saved_bytes, nullptr));
    state.struct_size = sizeof state;
    EXPECT_GSC_OK(gsc_scaler_get_state_sync(scaler(), &state, nullptr));
  }
  World(const World &) = delete;
  World &operator=(const World &) = delete;

  gsc_scaler *scaler() const { return training.scaler.get(); }
  gsc_tensor_list *grads() const { return training.grads.get(); }
  gsc_optimizer *optimizer() const { return training.optimizer.get(); }

  gsc_report *pinned() {
    static auto *const report = static_cast<gsc_report *>(emulation::allocate_pinned(sizeof(gsc_report)));
    *report = {};
    report->struct_size = sizeof *report;
    return report;
  }

  /// Everything that an operation may change.
  std::vector<char> content() {
    std::vector<char> all;
    const auto add = [&](const void *data, size_t bytes) {
      const auto *begin = static_cast<const char *>(data);
      all.insert(all.end(), begin, begin + bytes);
    };
    const auto add_device = [&](Twin &twin) {
      const gsc_tensor t = twin.device_tensor();
      std::vector<char> bytes(static_cast<size_t>(t.count * dtype_size(t.dtype)));
      copy_to_host(bytes.data(), t.data, static_cast<int64_t>(bytes.size()));
      add(bytes.data(), bytes.size());
    };
    for (Training *t : {&training, &away}) {
      for (Twin &twin : t->p) add_device(twin);
      for (Twin &twin : t->g) add_device(twin);
      gsc_scaler_state s{};
      s.struct_size = sizeof s;
      EXPECT_GSC_OK(gsc_scaler_get_state_sync(t->scaler.get(), &s, nullptr));
      add(&s, sizeof s);
      int64_t bytes = 0;
      EXPECT_GSC_OK(gsc_optimizer_get_save_size(t->optimizer.get(), &bytes));
      std::vector<char> checkpoint(static_cast<size_t>(bytes));
      EXPECT_GSC_OK(gsc_optimizer_save_sync(t->optimizer.get(), checkpoint.data(), bytes, nullptr));
      add(checkpoint.data(), checkpoint.size());
    }
    add_device(x);
    add_device(y);
    add_device(z);
    const float scalar = word.read();
    const double sum = sums.read();
    add(&scalar, sizeof scalar);
    add(&sum, sizeof sum);
    add(&answer, sizeof answer);
    return all;
  }

  Context context, other;
  Training training, away;
  Twin x, y, z;
  TwinWord<float> word;
  TwinWord<float> inverse;
  TwinWord<double> sums;
  int64_t saved_bytes = 0;
  std::vector<char> saved;
  gsc_scaler_state state{};
  double answer = 0.0;
  List x_list, y_list;
  std::vector<std::shared_ptr<void>> made;
};

struct Operation {
  const char *name;
  std::function<gsc_status(World &)> run;
  std::function<void(World &)> prepare = nullptr;
  bool creates = false;          ///< an object, and nothing else
  const char *partly = nullptr;  ///< the message if it has been done in part; "": any failure may leave it so
  bool pools = true;             ///< whether the device has memory pools
};
inline void PrintTo(const Operation &o, std::ostream *out) { *out << o.name; }

/// All of them.
std::span<const Operation> failing_operations();

/// A reducer of one rank.
inline int32_t all_reduce_alone(void *, double *, int64_t, gsc_stream) { return 0; }
/// A step of the list that belongs to another context than the scaler.
inline gsc_status iteration_away(World &w) { return gsc_scaler_step(w.scaler(), w.away.optimizer.get(), nullptr); }

}  // namespace gsc_test
#endif
