// SPDX-License-Identifier: Apache-2.0
//
// Every operation that makes calls of the runtime or the driver, as a table (operations.cpp), and the objects that they
// work on, counted by separate allocators.
#ifndef GRADSCALER_TESTS_CUDA_OPERATIONS_H
#define GRADSCALER_TESTS_CUDA_OPERATIONS_H
#include <array>
#include <functional>
#include <span>

#include "tests/cuda/training.h"

namespace gsc_test {
/// Of the contexts, counted.
inline HostMemory host_memory;
inline Context make_counted_context() { return make_context(host_memory.options(GSC_DEVICE_CUDA)); }

/// Everything that exists and must be unchanged at the end.
struct Inventory {
  int64_t host = host_memory.live;
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
    for (Twin *twin : {&x, &y, &z}) twin->fill(kOrdinary, random);
    saved = saved_image(optimizer);
    state = state_of(training.scaler);
  }
  World &operator=(World &&) = delete;

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
    const auto add_all = [&](const auto &bytes) { add(bytes.data(), bytes.size()); };
    const auto add_value = [&](const auto &value) { add(&value, sizeof value); };
    for (const Training *t : {&training, &away}) {
      for (const Twin &twin : t->p) add_all(twin.image());
      for (const Twin &twin : t->g) add_all(twin.image());
      add_value(state_of(t->scaler));
      add_all(saved_image(t->optimizer));
    }
    for (const Twin *twin : {&x, &y, &z}) add_all(twin->image());
    add_value(word.read());
    add_value(sums.read());
    add_value(answer);
    return all;
  }

  Context context = make_counted_context(), other = make_counted_context();
  Training training{context, 2, 300}, away{other, 2, 300};
  gsc_scaler *const scaler = training.scaler;
  gsc_tensor_list *const grads = training.grads;
  Scaler disabled = make_scaler(context, disabled_options());
  gsc_optimizer *const optimizer = training.optimizer;
  Twin x{GSC_FP32, 300}, y{GSC_FP16, 300}, z{GSC_FP64, 300};
  TwinWord<float> word{0.5f}, inverse{0.5f};
  TwinWord<double> sums{0.0};
  TwinWord<std::array<double, 2>> norms{{0.0, 0.0}};  ///< a call that fails after its check has written them
  Image saved;
  gsc_scaler_state state{};
  double answer = 0.0;
  // What calls take and give.
  const gsc_optimizer_options adamw = optimizer_options(GSC_ADAMW);
  gsc_scaler_state read_state = with_size<gsc_scaler_state>();
  int64_t numbers[2] = {};
  int32_t apply = 0;
  float scale = 0.0f;
  List x_list, y_list;
  std::vector<std::shared_ptr<void>> made;
};

struct Operation {
  const char *name;  ///< of the function without gsc_; what is in `_sync` waits
  std::function<gsc_status(World &)> run;
  std::function<gsc_status(World &)> prepare = nullptr;
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
