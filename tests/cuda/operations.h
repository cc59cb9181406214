// SPDX-License-Identifier: Apache-2.0
//
// Every operation that makes calls of the runtime or the driver, as a table (operations.cpp), and the objects that they
// work on, counted by separate allocators.
#ifndef GRADSCALER_TESTS_CUDA_OPERATIONS_H
#define GRADSCALER_TESTS_CUDA_OPERATIONS_H
#include <functional>
#include <span>

#include "tests/cuda/training.h"

namespace gsc_test {
/// Live host allocations, counted by the context's own allocator.
inline int64_t host_blocks = 0;

inline gsc_context_options counted_options() {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = GSC_DEVICE_CUDA;
  options.allocate = [](void *, int64_t bytes, int64_t alignment) {
    ++host_blocks;
    return std::aligned_alloc(static_cast<size_t>(alignment),
                              static_cast<size_t>((bytes + alignment - 1) / alignment * alignment));
  };
  options.release = [](void *, void *memory, int64_t, int64_t) {
    --host_blocks;
    std::free(memory);
  };
  return options;
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
  World() {
    Random random(7);
    for (Twin *twin : {&x, &y, &z}) twin->fill(Values::kOrdinary, random);
    saved = saved_image(optimizer);
    state = state_of(training.scaler);
  }
  World(const World &) = delete;
  World &operator=(const World &) = delete;

  gsc_report *pinned() {
    static auto *const report = static_cast<gsc_report *>(emulation::allocate_pinned(sizeof(gsc_report)));
    *report = with_size<gsc_report>();
    return report;
  }

  /// Everything that an operation may change.
  std::vector<char> content() const {
    std::vector<char> all;
    const auto add = [&](const void *data, size_t bytes) {
      const auto *begin = static_cast<const char *>(data);
      all.insert(all.end(), begin, begin + bytes);
    };
    const auto add_device = [&](const Twin &twin) {
      const std::vector<char> bytes = twin.image();
      add(bytes.data(), bytes.size());
    };
    for (const Training *t : {&training, &away}) {
      for (const Twin &twin : t->p) add_device(twin);
      for (const Twin &twin : t->g) add_device(twin);
      const gsc_scaler_state s = state_of(t->scaler);
      add(&s, sizeof s);
      const std::vector<unsigned char> image = saved_image(t->optimizer);
      add(image.data(), image.size());
    }
    for (const Twin *twin : {&x, &y, &z}) add_device(*twin);
    const float scalar = word.read();
    const double sum = sums.read();
    add(&scalar, sizeof scalar);
    add(&sum, sizeof sum);
    add(&answer, sizeof answer);
    return all;
  }

  Context context = make_context(counted_options()), other = make_context(counted_options());
  Training training{context, 2, 300}, away{other, 2, 300};
  gsc_scaler *const scaler = training.scaler;
  gsc_tensor_list *const grads = training.grads;
  gsc_optimizer *const optimizer = training.optimizer;
  Twin x{GSC_FP32, 300}, y{GSC_FP16, 300}, z{GSC_FP64, 300};
  TwinWord<float> word{0.5f}, inverse{0.5f};
  TwinWord<double> sums{0.0};
  std::vector<unsigned char> saved;
  gsc_scaler_state state{};
  double answer = 0.0;
  List x_list, y_list;
  std::vector<std::shared_ptr<void>> made;
};

struct Operation {
  const char *name;  ///< of the function without gsc_; what is in `_sync` waits
  std::function<gsc_status(World &)> run;
  std::function<void(World &)> prepare = nullptr;
  bool allocates = false;        ///< an object, and does nothing else; or what later calls use
  const char *partly = nullptr;  ///< the message if it has been done in part; "": any failure may leave it so
  bool pools = true;             ///< whether the device has memory pools
};
inline void PrintTo(const Operation &o, std::ostream *out) { *out << o.name; }

/// All of them.
std::span<const Operation> operations();

/// A reducer of one rank.
inline int32_t all_reduce_alone(void *, double *, int64_t, gsc_stream) { return 0; }
/// A step of the list that belongs to another context than the scaler.
inline gsc_status iteration_away(World &w) { return gsc_scaler_step(w.scaler, w.away.optimizer, nullptr); }

}  // namespace gsc_test
#endif
