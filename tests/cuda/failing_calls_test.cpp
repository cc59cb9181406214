// SPDX-License-Identifier: Apache-2.0
//
// Every runtime and driver call that an operation makes fails in turn, on the emulated devices. The operation then
// reports an error that names the call, restores the thread's context and capture mode, leaves no error behind in the
// runtime, and has done nothing or everything: a retry gives the same result as without the failure. Nothing leaks.
#include <functional>

#include "tests/cuda/training.h"

namespace gsc_test {
namespace {

/// Live host allocations, counted by the context's own allocator.
int64_t host_blocks = 0;
void *allocate_counted(void *, int64_t bytes, int64_t alignment) {
  ++host_blocks;
  return std::aligned_alloc(static_cast<size_t>(alignment),
                            static_cast<size_t>((bytes + alignment - 1) / alignment * alignment));
}
void release_counted(void *, void *memory, int64_t, int64_t) {
  --host_blocks;
  std::free(memory);
}

gsc_context_options counted_options() {
  gsc_context_options options = GSC_CONTEXT_OPTIONS_INIT;
  options.device_type = GSC_DEVICE_CUDA;
  options.allocate = allocate_counted;
  options.release = release_counted;
  return options;
}

Context make_counted_context() {
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
void PrintTo(const Inventory &i, std::ostream *out) {
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
      std::vector<char> checkpoint(saved.size());
      EXPECT_GSC_OK(gsc_optimizer_save_sync(t->optimizer.get(), checkpoint.data(), saved_bytes, nullptr));
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
  const char *partly = nullptr;  ///< what the message says if it has been done in part; "": any failure may leave it so
  bool pools = true;             ///< whether the device has memory pools
};
void PrintTo(const Operation &o, std::ostream *out) { *out << o.name; }

class Pools {
 public:
  explicit Pools(bool there) { emulation::set_memory_pools(there); }
  Pools(const Pools &) = delete;
  Pools &operator=(const Pools &) = delete;
  ~Pools() { emulation::set_memory_pools(true); }
};

class FailingCalls : public ::testing::TestWithParam<Operation> {};

TEST_P(FailingCalls, EachInTurn) {
  const Operation &operation = GetParam();
  const Pools pools(operation.pools);
  const auto prepared = [&] {
    auto world = std::make_unique<World>();
    if (operation.prepare) operation.prepare(*world);
    return world;
  };
  std::vector<char> untouched, want;
  int64_t calls = 0;
  {
    const auto world = prepared();
    untouched = world->content();
    emulation::fail_call(-1);
    ASSERT_GSC_OK(operation.run(*world));
    calls = emulation::call_count();
    want = world->content();
  }
  const CUctx_st *const current = emulation::current_context();
  for (int64_t i = 0; i < calls && !HasFailure(); ++i) {
    const Inventory before;
    bool frees_all = true;
    auto world = prepared();
    const Inventory started;
    emulation::fail_call(i);
    const gsc_status status = operation.run(*world);
    const std::string failed = emulation::failed_call() != nullptr ? emulation::failed_call() : "";
    emulation::fail_call(-1);
    SCOPED_TRACE(text("call ", i, " of ", calls, ", ", failed));
    ASSERT_FALSE(failed.empty());
    EXPECT_EQ(emulation::current_context(), current);
    EXPECT_FALSE(emulation::is_capture_relaxed());
    EXPECT_EQ(emulation::take_last_error(), cudaSuccess) << "an error was left behind";
    if (status == GSC_OK) {  // a failure that is made up for, or one of tidying up
      EXPECT_TRUE(world->content() == want);
      frees_all = failed.rfind("cuCtx", 0) != 0;  // without the context nothing can be freed
    } else {
      const bool at_the_door = failed == "cudaGetDeviceCount";
      EXPECT_TRUE(is_error(status, at_the_door ? GSC_ERROR_UNAVAILABLE : GSC_ERROR_DEVICE, {failed.c_str()}));
      if (operation.creates) {
        EXPECT_EQ(Inventory(), started);
      }
      const bool is_half_done = operation.partly != nullptr && is_error(status, GSC_ERROR_DEVICE, {operation.partly});
      if (!is_half_done) {
        EXPECT_TRUE(world->content() == untouched) << "something was changed";
        EXPECT_GSC_OK(operation.run(*world)) << "tried again";
        EXPECT_TRUE(world->content() == want) << "what was done is not what is done without the failure";
      }
    }
    world.reset();
    if (frees_all) {
      EXPECT_EQ(Inventory(), before);
    }
  }
}

const gsc_tensor &tensor_of(Twin &twin) {
  static gsc_tensor tensor;
  return tensor = twin.device_tensor();
}

gsc_status diagnose(World &w) {
  std::vector<gsc_tensor_diagnosis> out(2);
  std::vector<int64_t> histogram(2 * GSC_EXPONENT_BINS);
  const gsc_status status = gsc_tensor_list_diagnose_sync(w.grads(), out.data(), histogram.data(), 2, nullptr);
  if (status == GSC_OK) w.answer = out[1].amax + static_cast<double>(histogram[130]);
  return status;
}

gsc_status read_report(World &w) { return gsc_scaler_read_report_async(w.scaler(), w.grads(), w.pinned(), nullptr); }

gsc_status norm(World &w) {
  const gsc_tensor x = w.x.device_tensor();
  return gsc_ops_norm(w.context.get(), &x, 1, GSC_NORM_L2, w.sums.device(), nullptr, nullptr);
}

/// y = 0.5 x + 0.25 y, of more tensors than one launch sends.
gsc_status add_parts(World &w) {
  std::vector<gsc_tensor> from, to;
  for (int64_t i = 0; i < 130; ++i) {
    from.push_back(GSC_TENSOR_INIT(static_cast<float *>(w.x.device_tensor().data) + 2 * i, 2, GSC_FP32));
    to.push_back(GSC_TENSOR_INIT(static_cast<uint16_t *>(w.y.device_tensor().data) + 2 * i, 2, GSC_FP16));
  }
  return gsc_ops_axpby(w.context.get(), 0.5, from.data(), 0.25, to.data(), 130, nullptr);
}

gsc_status step_made(World &w) {
  return gsc_optimizer_step(static_cast<gsc_optimizer *>(w.made.back().get()), nullptr);
}
void make_one(World &w, int32_t kind, const std::vector<gsc_tensor> &params, const std::vector<gsc_tensor> &grads) {
  w.x_list = make_list(w.context, params);
  w.y_list = make_list(w.context, grads);
  w.made.emplace_back(make_optimizer(w.context, optimizer_options(kind), w.x_list, w.y_list).release(),
                      gsc_optimizer_destroy);
}

gsc_status set_pointers(World &w) {
  std::vector<void *> addresses;
  for (Twin &twin : w.training.g) addresses.push_back(twin.device_tensor().data);
  std::swap(addresses[0], addresses[1]);
  return gsc_tensor_list_set_pointers(w.grads(), addresses.data(), 2, nullptr);
}

/// Keeps what `create` makes for the rest of the test.
template <typename T, typename Create, typename Destroy>
gsc_status make(World &w, const Create &create, const Destroy &destroy) {
  T *made = nullptr;
  const gsc_status status = create(&made);
  EXPECT_EQ(made != nullptr, status == GSC_OK);
  if (made != nullptr) w.made.emplace_back(made, destroy);
  return status;
}

gsc_status iteration_away(World &w) {
  const gsc_status status = gsc_scaler_step(w.scaler(), w.away.optimizer.get(), nullptr);
  return status;
}

void overflow(World &w) {
  Random random(2);
  w.training.g[0].fill(Values::kWithInf, random);
}
int32_t all_reduce_alone(void *, double *, int64_t, gsc_stream) { return 0; }
void join_ranks(World &w) {
  const gsc_reducer reducer = {sizeof reducer, 0, all_reduce_alone, nullptr};
  EXPECT_GSC_OK(gsc_scaler_set_reducer(w.scaler(), &reducer));
}
void check_first(World &w) { EXPECT_GSC_OK(gsc_scaler_check_range(w.scaler(), w.grads(), 0, 1, nullptr)); }
void unscale(World &w) { EXPECT_GSC_OK(gsc_scaler_unscale(w.scaler(), w.grads(), nullptr)); }
void add_groups(World &w) {
  const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
  for (int i = 0; i < 17; ++i) EXPECT_GSC_OK(gsc_optimizer_add_group(w.optimizer(), 0, 0, &options, nullptr));
}
void step(World &w) { EXPECT_GSC_OK(gsc_scaler_step(w.scaler(), w.optimizer(), nullptr)); }

const Operation kOperations[] = {
    {"context",
     [](World &w) {
       const gsc_context_options options = counted_options();
       return make<gsc_context>(
           w, [&](auto **out) { return gsc_context_create(&options, out); }, gsc_context_destroy);
     },
     nullptr, true},
    {"context_in_current",
     [](World &w) {
       gsc_context_options options = counted_options();
       options.flags = GSC_CONTEXT_USE_CURRENT;
       return make<gsc_context>(
           w, [&](auto **out) { return gsc_context_create(&options, out); }, gsc_context_destroy);
     },
     [](World &) { emulation::set_current_context(emulation::primary_context(0)); }, true},
    {"device_info",
     [](World &) {
       gsc_device_info info{};
       info.struct_size = sizeof info;
       return gsc_device_get_info(GSC_DEVICE_CUDA, 0, &info);
     }},
    {"list",
     [](World &w) {
       const gsc_tensor tensors[] = {w.x.device_tensor(), w.y.device_tensor()};
       return make<gsc_tensor_list>(
           w, [&](auto **out) { return gsc_tensor_list_create(w.context.get(), tensors, 2, nullptr, out); },
           gsc_tensor_list_destroy);
     },
     nullptr, true},
    {"scaler",
     [](World &w) {
       return make<gsc_scaler>(
           w, [&](auto **out) { return gsc_scaler_create(w.context.get(), nullptr, out); }, gsc_scaler_destroy);
     },
     nullptr, true},
    {"check", [](World &w) { return gsc_scaler_check(w.scaler(), w.grads(), nullptr); }},
    {"check_range", [](World &w) { return gsc_scaler_check_range(w.scaler(), w.grads(), 0, 1, nullptr); }},
    {"check_range_the_rest", [](World &w) { return gsc_scaler_check_range(w.scaler(), w.grads(), 1, 1, nullptr); },
     check_first},
    {"check_joined", [](World &w) { return gsc_scaler_check(w.scaler(), w.grads(), nullptr); }, join_ranks},
    {"unscale_joined", [](World &w) { return gsc_scaler_unscale(w.scaler(), w.grads(), nullptr); }, join_ranks, false,
     "grads is unscaled: discard it"},
    {"step_after_range", [](World &w) { return gsc_scaler_step(w.scaler(), w.optimizer(), nullptr); }, check_first},
    {"unscale", [](World &w) { return gsc_scaler_unscale(w.scaler(), w.grads(), nullptr); }},
    {"unscale_checked", [](World &w) { return gsc_scaler_unscale(w.scaler(), w.grads(), nullptr); },
     [](World &w) { EXPECT_GSC_OK(gsc_scaler_check(w.scaler(), w.grads(), nullptr)); }},
    {"clip_grad_norm",
     [](World &w) { return gsc_scaler_clip_grad_norm(w.scaler(), w.grads(), 1e-4, GSC_NORM_L2, nullptr); }, unscale},
    {"clip_grad_value", [](World &w) { return gsc_scaler_clip_grad_value(w.scaler(), w.grads(), 1e-4, nullptr); },
     unscale},
    {"step", [](World &w) { return gsc_scaler_step(w.scaler(), w.optimizer(), nullptr); }},
    {"step_and_update", [](World &w) { return w.training.step(); }},
    {"step_with_overflow", [](World &w) { return w.training.step(); }, overflow},
    {"update", [](World &w) { return gsc_scaler_update(w.scaler(), nullptr); }, step},
    {"step_away", iteration_away},
    {"update_away", [](World &w) { return gsc_scaler_update(w.scaler(), nullptr); },
     [](World &w) { EXPECT_GSC_OK(iteration_away(w)); }},
    {"set_scale", [](World &w) { return gsc_scaler_set_scale(w.scaler(), 8.0f, nullptr); }},
    {"set_options",
     [](World &w) {
       const gsc_scaler_options options = scaler_options(1024.0f, 7);
       return gsc_scaler_set_options(w.scaler(), &options, nullptr);
     }},
    {"set_state",
     [](World &w) {
       w.state.scale = 16.0f;
       return gsc_scaler_set_state(w.scaler(), &w.state, nullptr);
     }},
    {"get_state",
     [](World &w) {
       gsc_scaler_state state{};
       state.struct_size = sizeof state;
       return gsc_scaler_get_state_sync(w.scaler(), &state, nullptr);
     }},
    {"get_scale",
     [](World &w) {
       float scale = 0.0f;
       return gsc_scaler_get_scale_sync(w.scaler(), &scale, nullptr);
     }},
    {"get_report",
     [](World &w) {
       gsc_report report{};
       report.struct_size = sizeof report;
       return gsc_scaler_get_report_sync(w.scaler(), w.grads(), &report, nullptr);
     },
     step},
    {"read_report", read_report, step},
    {"read_report_without_pools", read_report, step, false, nullptr, false},
    {"get_history",
     [](World &w) {
       gsc_history_entry entry;
       int64_t count = 0;
       return gsc_scaler_get_history_sync(w.scaler(), &entry, 1, &count, nullptr);
     },
     [](World &w) { EXPECT_GSC_OK(w.training.step()); }},
    {"should_step",
     [](World &w) {
       int32_t apply = 0;
       return gsc_scaler_should_step_sync(w.scaler(), w.grads(), &apply, nullptr);
     }},
    {"scale",
     [](World &w) {
       const gsc_tensor from = w.x.device_tensor(), to = w.y.device_tensor();
       return gsc_scaler_scale(w.scaler(), &from, &to, 1, nullptr);
     }},
    {"set_pointers", set_pointers},
    {"diagnose", diagnose},
    {"diagnose_without_pools", diagnose, nullptr, false, nullptr, false},
    {"optimizer",
     [](World &w) {
       const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
       return make<gsc_optimizer>(
           w,
           [&](auto **out) {
             return gsc_optimizer_create(w.context.get(), &options, w.x_list.get(), w.y_list.get(), nullptr, nullptr, 0,
                                         out);
           },
           gsc_optimizer_destroy);
     },
     [](World &w) {
       w.x_list = make_list(w.context, {w.x.device_tensor()});
       w.y_list = make_list(w.context, {w.y.device_tensor()});
     },
     true},
    {"optimizer_add_group",
     [](World &w) {
       const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
       return gsc_optimizer_add_group(w.optimizer(), 0, 1, &options, nullptr);
     }},
    {"step_lamb", step_made, [](World &w) { make_one(w, GSC_LAMB, {w.x.device_tensor()}, {w.y.device_tensor()}); },
     false, "a part has been done"},
    {"step_with_fp64", step_made,
     [](World &w) {
       make_one(w, GSC_ADAMW, {w.x.device_tensor(), w.z.device_tensor()},
                {w.y.device_tensor(), w.away.p[0].device_tensor()});
     },
     false, "a part has been done"},
    {"step_many_groups", [](World &w) { return w.training.step(); }, add_groups},
    {"optimizer_step", [](World &w) { return gsc_optimizer_step(w.optimizer(), nullptr); }},
    {"optimizer_step_scaled",
     [](World &w) { return gsc_optimizer_step_scaled(w.optimizer(), w.word.device(), nullptr, nullptr); }},
    {"optimizer_set_lr", [](World &w) { return gsc_optimizer_set_lr(w.optimizer(), 0, 0.25, nullptr); }},
    {"optimizer_set_device_lr",
     [](World &w) { return gsc_optimizer_set_device_lr(w.optimizer(), 0, w.word.device(), nullptr); }},
    {"optimizer_set_options",
     [](World &w) {
       const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
       return gsc_optimizer_set_options(w.optimizer(), 0, &options, nullptr);
     }},
    {"optimizer_set_steps", [](World &w) { return gsc_optimizer_set_steps(w.optimizer(), 5, 1, nullptr); }},
    {"optimizer_zero_grads", [](World &w) { return gsc_optimizer_zero_grads(w.optimizer(), nullptr); }},
    {"optimizer_save",
     [](World &w) { return gsc_optimizer_save_sync(w.optimizer(), w.saved.data(), w.saved_bytes, nullptr); }},
    {"optimizer_get_steps",
     [](World &w) {
       int64_t applied = 0, skipped = 0;
       return gsc_optimizer_get_steps_sync(w.optimizer(), &applied, &skipped, nullptr);
     }},
    {"optimizer_load",
     [](World &w) { return gsc_optimizer_load_sync(w.optimizer(), w.saved.data(), w.saved_bytes, nullptr); },
     [](World &w) { EXPECT_GSC_OK(w.training.step()); }, false, ""},
    {"ops_unscale_check",
     [](World &w) {
       return gsc_ops_unscale_check(w.context.get(), &tensor_of(w.x), 1, w.word.device(), w.inverse.device(), nullptr);
     }},
    {"ops_axpby", add_parts},
    {"ops_axpby_without_pools", add_parts, nullptr, false, nullptr, false},
    {"ops_cast",
     [](World &w) {
       const gsc_tensor from = w.x.device_tensor(), to = w.y.device_tensor();
       return gsc_ops_cast(w.context.get(), &from, &to, 1, nullptr);
     }},
    {"ops_scale",
     [](World &w) {
       const gsc_tensor from = w.x.device_tensor(), to = w.y.device_tensor();
       return gsc_ops_scale(w.context.get(), &from, &to, 1, w.word.device(), nullptr);
     }},
    {"ops_norm", norm},
    {"ops_norm_without_pools", norm, nullptr, false, nullptr, false},
    {"ops_update_scale",
     [](World &w) {
       auto *const scalars = static_cast<float *>(w.x.device_tensor().data);
       return gsc_ops_update_scale(w.context.get(), scalars, reinterpret_cast<int32_t *>(scalars + 2), scalars + 1, 2.0,
                                   0.5, 10, nullptr);
     }},
};

INSTANTIATE_TEST_SUITE_P(All, FailingCalls, ::testing::ValuesIn(kOperations),
                         [](const auto &info) { return std::string(info.param.name); });

/// Fails call after call of `run`, from call `first` on, until it makes no more. `each` sees every failure; `again` is
/// run before each.
void fail_in_turn(const std::function<void()> &again, const std::function<gsc_status()> &run,
                  const std::function<void()> &each, int64_t first = 0) {
  for (int64_t i = first;; ++i) {
    ASSERT_LT(i, first + 100);
    again();
    emulation::fail_call(i);
    const gsc_status status = run();
    const bool has_failed = emulation::failed_call() != nullptr;
    emulation::fail_call(-1);
    if (!has_failed) {
      EXPECT_GT(i, first);
      EXPECT_GSC_OK(status);
      return;
    }
    SCOPED_TRACE(i);
    if (status != GSC_OK) each();
  }
}

/// Three tensors of gradients that are 1.0 once unscaled, on an emulated device, and SGD of rate 1.
struct Simple {
  Simple() {
    gsc_optimizer_options options = optimizer_options(GSC_SGD);
    options.lr = 1.0;
    for (int i = 0; i < 3; ++i) {
      p.emplace_back(GSC_FP32, 50);
      g.emplace_back(GSC_FP32, 50);
    }
    grads = make_list(context, device_tensors(g));
    params = make_list(context, device_tensors(p));
    optimizer = make_optimizer(context, options, params, grads);
    scaler = make_scaler(context, 4.0f);
  }
  void fill(int tensor, double value) {
    Twin &twin = g[static_cast<size_t>(tensor)];
    std::vector<float> values(50, static_cast<float>(value));
    copy_to_device(twin.device_tensor().data, values.data(), 200);
  }
  void restart() {
    EXPECT_GSC_OK(gsc_scaler_discard(scaler.get(), nullptr));
    for (int i = 0; i < 3; ++i) {
      fill(i, 4.0);
      std::vector<float> zeros(50);
      copy_to_device(p[static_cast<size_t>(i)].device_tensor().data, zeros.data(), 200);
    }
  }
  float param(int tensor) {
    float value = 0.0f;
    copy_to_host(&value, p[static_cast<size_t>(tensor)].device_tensor().data, sizeof value);
    return value;
  }
  Context context = make_counted_context();
  Twins p, g;
  List params, grads;
  Optimizer optimizer;
  Scaler scaler;
};

TEST(FailingCalls, AStepTriedAgainStillLooksAtEveryTensor) {
  Simple s;
  fail_in_turn(
      [&] {
        s.restart();
        s.fill(2, kInf);
        EXPECT_GSC_OK(gsc_scaler_check_range(s.scaler.get(), s.grads.get(), 1, 1, nullptr));
      },
      [&] { return gsc_scaler_step(s.scaler.get(), s.optimizer.get(), nullptr); },
      [&] {
        EXPECT_GSC_OK(gsc_scaler_step(s.scaler.get(), s.optimizer.get(), nullptr));
        EXPECT_EQ(report_of(s.scaler, s.grads.get()).first_tensor, 2);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(s.param(i), 0.0f) << "an inf was stepped on";
      });
}

TEST(FailingCalls, AFailedUnscaleLeavesTheGradientsScaled) {
  Simple s;
  fail_in_turn([&] { s.restart(); }, [&] { return gsc_scaler_unscale(s.scaler.get(), s.grads.get(), nullptr); },
               [&] {
                 EXPECT_GSC_OK(gsc_scaler_clip_grad_value(s.scaler.get(), s.grads.get(), 2.0, nullptr));
                 EXPECT_GSC_OK(gsc_scaler_step(s.scaler.get(), s.optimizer.get(), nullptr));
                 EXPECT_EQ(s.param(0), -1.0f);
               });
}

TEST(FailingCalls, WhatAFailedCheckCountedIsForgotten) {
  Simple s;
  fail_in_turn(
      [&] {
        s.restart();
        s.fill(0, kInf);
        EXPECT_GSC_OK(gsc_scaler_check_range(s.scaler.get(), s.grads.get(), 0, 1, nullptr));
      },
      [&] { return gsc_scaler_check_range(s.scaler.get(), s.grads.get(), 1, 2, nullptr); },
      [&] {
        s.restart();
        EXPECT_GSC_OK(gsc_scaler_check(s.scaler.get(), s.grads.get(), nullptr));
        EXPECT_EQ(report_of(s.scaler, s.grads.get()).nonfinite_count, 0);
      });
}

/// Either all of a list's tensors are elsewhere or none, and the host agrees with the device.
TEST(FailingCalls, AListThatIsNotPointedElsewhereStaysWhereItIs) {
  const Context context = make_counted_context();
  constexpr int kTensors = 1000;  // three launches
  const auto bytes = static_cast<int64_t>(kTensors * sizeof(float));
  const DeviceBytes before(bytes), after(bytes);
  const auto fill = [&](const DeviceBytes &memory, float value) {
    const std::vector<float> values(kTensors, value);
    copy_to_device(memory.data(), values.data(), bytes);
  };
  const auto addresses = [&](const DeviceBytes &memory) {
    std::vector<void *> result;
    for (int i = 0; i < kTensors; ++i) result.push_back(memory.data() + i * sizeof(float));
    return result;
  };
  const std::vector<void *> old_addresses = addresses(before), new_addresses = addresses(after);
  std::vector<gsc_tensor> tensors;
  for (void *address : old_addresses) tensors.push_back(GSC_TENSOR_INIT(address, 1, GSC_FP32));
  const List list = make_list(context, tensors);
  const Scaler scaler = make_scaler(context, 1.0f);
  fill(before, 2.0f);
  fill(after, 3.0f);
  int failures = 0;
  const auto norm = [&] {
    EXPECT_GSC_OK(gsc_scaler_check(scaler.get(), list.get(), nullptr));
    const double result = report_of(scaler, list.get()).grad_norm;
    EXPECT_GSC_OK(gsc_scaler_discard(scaler.get(), nullptr));
    return result;
  };
  fail_in_turn([] {}, [&] { return gsc_tensor_list_set_pointers(list.get(), new_addresses.data(), kTensors, nullptr); },
               [&] {
                 ++failures;
                 EXPECT_EQ(norm(), std::sqrt(4.0 * kTensors));
                 gsc_tensor last{};
                 EXPECT_GSC_OK(gsc_tensor_list_get_tensor(list.get(), kTensors - 1, &last));
                 EXPECT_EQ(last.data, old_addresses.back());
               },
               kTensors);  // after the look at each address
  EXPECT_GE(failures, 3);
  EXPECT_EQ(norm(), std::sqrt(9.0 * kTensors));
}

/// Its first launches add up what the last one concludes.
TEST(FailingCalls, AnUpdateOfManyListsChangesNoReport) {
  const Context context = make_counted_context();
  Twin twin(GSC_FP32, 1);
  twin.host().set(0, 1.0);
  twin.upload();
  const Scaler scaler = make_scaler(context, 1.0f);
  std::vector<List> lists;
  for (int i = 0; i < 1000; ++i) {
    lists.push_back(make_list(context, {twin.device_tensor()}));
  }
  int failures = 0;
  fail_in_turn(
      [&] {
        for (const List &list : lists) EXPECT_GSC_OK(gsc_scaler_check(scaler.get(), list.get(), nullptr));
      },
      [&] { return gsc_scaler_update(scaler.get(), nullptr); },
      [&] {
        ++failures;
        const gsc_report report = report_of(scaler);
        EXPECT_EQ(report.updates, 0);
        EXPECT_EQ(report.grad_norm, 0.0);
        EXPECT_GSC_OK(gsc_scaler_discard(scaler.get(), nullptr));
      });
  EXPECT_GE(failures, 3);
  EXPECT_EQ(report_of(scaler).grad_norm, std::sqrt(1000.0));
}

/// The gradients have been written, and the ranks have been joined: nothing may go on from there.
TEST(FailingCalls, AnUnscaleThatFailsAfterTheReducerLosesTheList) {
  Simple s;
  const gsc_reducer reducer = {sizeof reducer, 0, all_reduce_alone, nullptr};
  ASSERT_GSC_OK(gsc_scaler_set_reducer(s.scaler.get(), &reducer));
  gsc_scaler *const scaler = s.scaler.get();
  int lost = 0;
  fail_in_turn([&] { s.restart(); }, [&] { return gsc_scaler_unscale(scaler, s.grads.get(), nullptr); },
               [&] {
                 if (std::string(gsc_error_get_message()).find("discard it") == std::string::npos) return;
                 ++lost;
                 EXPECT_GSC_ERROR(gsc_scaler_unscale(scaler, s.grads.get(), nullptr), GSC_ERROR_BAD_STATE, "grads",
                                  "discard");
                 EXPECT_GSC_ERROR(gsc_scaler_step(scaler, s.optimizer.get(), nullptr), GSC_ERROR_BAD_STATE, "discard");
                 EXPECT_GSC_ERROR(gsc_scaler_update(scaler, nullptr), GSC_ERROR_BAD_STATE, "discard");
               });
  EXPECT_GT(lost, 0);
}

TEST(FailingCalls, AHalfLoadedOptimizerWaitsForAnotherLoad) {
  World w;
  EXPECT_GSC_OK(w.training.step());
  const std::vector<char> want = w.saved;
  emulation::fail_call(12);
  EXPECT_GSC_ERROR(gsc_optimizer_load_sync(w.optimizer(), want.data(), w.saved_bytes, nullptr), GSC_ERROR_DEVICE,
                   "writing to the device failed");
  emulation::fail_call(-1);
  EXPECT_GSC_ERROR(w.training.step(), GSC_ERROR_BAD_STATE, "part of a checkpoint");
  EXPECT_GSC_ERROR(gsc_optimizer_save_sync(w.optimizer(), w.saved.data(), w.saved_bytes, nullptr), GSC_ERROR_BAD_STATE,
                   "load it again");
  EXPECT_GSC_OK(gsc_optimizer_load_sync(w.optimizer(), want.data(), w.saved_bytes, nullptr));
  EXPECT_GSC_OK(gsc_optimizer_save_sync(w.optimizer(), w.saved.data(), w.saved_bytes, nullptr));
  EXPECT_EQ(w.saved, want);
  EXPECT_GSC_OK(w.training.step());
}

/// Destruction cannot report errors; it frees what it can and restores the thread.
TEST(FailingCalls, OfDestruction) {
  int64_t calls = 0;
  const auto destroy = [](std::unique_ptr<World> &w, int64_t failing) {
    emulation::fail_call(failing);
    for (Training *t : {&w->training, &w->away}) {
      t->optimizer.reset();
      t->scaler.reset();
      t->params.reset();
      t->grads.reset();
    }
    w->context.reset();
    w->other.reset();
  };
  for (int64_t i = -1; i < calls && !HasFailure(); ++i) {
    const Inventory before;
    auto world = std::make_unique<World>();
    EXPECT_GSC_OK(iteration_away(*world));
    EXPECT_GSC_OK(gsc_scaler_update(world->scaler(), nullptr));
    const CUctx_st *const current = emulation::current_context();
    destroy(world, i);
    if (i < 0) calls = emulation::call_count();
    const std::string failed = i < 0 ? "" : emulation::failed_call();
    emulation::fail_call(-1);
    world.reset();
    SCOPED_TRACE(text("call ", i, " of ", calls, ", ", failed));
    EXPECT_EQ(emulation::current_context(), current);
    EXPECT_FALSE(emulation::is_capture_relaxed());
    EXPECT_EQ(emulation::take_last_error(), cudaSuccess);
    EXPECT_EQ(host_blocks, before.host);
    EXPECT_EQ(emulation::reference_count(emulation::primary_context(0)), before.references);
    if (failed.rfind("cuCtx", 0) != 0) {  // without the context nothing can be freed
      EXPECT_EQ(Inventory(), before);
    }
  }
}

}  // namespace
}  // namespace gsc_test
