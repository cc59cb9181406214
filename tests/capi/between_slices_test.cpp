// SPDX-License-Identifier: Apache-2.0
//
// Between two slices of a step, every function of the header that takes a scaler, an optimizer or a list, with the
// step's own and with each optimizer that shares a list with it: either it fails with BAD_STATE and changes nothing, or
// the comment of gsc_scaler_step_slice names it as harmless, and then the step ends in the bits of an undisturbed
// one. A new function without a row fails. The kind of defect: a call that steps, moves, saves or looks at memory
// that a step has half written.
#include <fstream>
#include <regex>
#include <set>

#include "tests/capi/slices_harness.h"
#include "tests/support/getters.h"

namespace gsc_test {
namespace {

const SliceCase kCase = {.name = "adamw", .kind = GSC_ADAMW, .grad_dtypes = {GSC_FP32}};
const std::vector<int64_t> kCounts = {40000, 64, 64, 64, 1000};
constexpr int64_t kTensors = 5;

/// An optimizer with separate lists, except for one that is the step's.
struct Sharing {
  std::vector<Buffer> params, grads;
  List param_list, grad_list;
  Optimizer optimizer;
};

struct World {
  Context context = make_context(1);
  Training step{context, kCase, kCounts};
  Training other{context, kCase, kCounts};  ///< shares nothing; `step.scaler` may step it, too
  Scaler rival = make_scaler(context, 64.0F);
  gsc_tensor_list *params = nullptr, *grads = nullptr, *copies = nullptr, *state[2] = {};
  std::vector<Buffer> param_memory, copy_memory, own_grads[4], own_params[2], own_copies;
  List lists[8];
  Optimizer over_params, over_grads, over_copies, over_state;
  int64_t left = 0;

  World() {
    Random random(3);
    grads = step.trainer.grad_list();
    // Lists of the step are only known by the optimizers that are made over them, so they are made here.
    for (int32_t s = 0; s < 2; ++s) EXPECT_GSC_OK(gsc_optimizer_get_state(step.trainer, s, &state[s], nullptr));
    params = step.trainer.param_list();
    copies = step.trainer.copy_list();
    for (int i = 0; i < 4; ++i) own_grads[i] = make_buffers(GSC_FP32, kCounts);
    for (int i = 0; i < 2; ++i) own_params[i] = make_buffers(GSC_FP32, kCounts);
    for (int i = 0; i < 4; ++i) lists[i] = make_list(context, own_grads[i]);
    for (int i = 0; i < 2; ++i) lists[4 + i] = make_list(context, own_params[i]);
    over_params = made({.params = params, .grads = lists[0]});
    over_grads = made({.params = lists[4], .grads = grads});
    over_copies = made({.params = copies, .grads = lists[1]});
    over_state = made({.params = lists[5], .grads = lists[2], .state = {state[0], state[1]}});
    step.trainer.fill_grads(random, 1.0, 8.0);
    other.trainer.fill_grads(random, 1.0, 8.0);
  }

  struct Lists {
    gsc_tensor_list *params, *grads;
    std::vector<gsc_tensor_list *> state = {};
    gsc_tensor_list *copies = nullptr;
  };
  gsc_status make(const Lists &from, gsc_optimizer **out) const {
    const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
    return gsc_optimizer_create(context, &options, from.params, from.grads, from.copies,
                                from.state.empty() ? nullptr : from.state.data(), std::ssize(from.state), out);
  }
  Optimizer made(const Lists &from) const {
    gsc_optimizer *optimizer = nullptr;
    EXPECT_GSC_OK(make(from, &optimizer));
    return Optimizer(optimizer);
  }
  std::vector<gsc_tensor_list *> all_lists() const { return {params, grads, copies, state[0], state[1]}; }

  /// Everything that a call between slices must leave alone.
  std::string bytes() {
    std::string all;
    const auto add = [&](const auto &image) { all.append(reinterpret_cast<const char *>(image.data()), image.size()); };
    const Snapshot snapshot = step.trainer.snapshot();
    for (const auto *images : {&snapshot.params, &snapshot.grads, &snapshot.copies, &snapshot.state}) {
      for (const Image &image : *images) add(image);
    }
    for (const auto &buffers : own_grads) {
      for (const Image &image : images_of(buffers)) add(image);
    }
    const gsc_scaler_state state_now = state_of(step.scaler);
    auto options = with_size<gsc_scaler_options>();
    EXPECT_GSC_OK(gsc_scaler_get_options(step.scaler, &options));
    all.append(reinterpret_cast<const char *>(&state_now), sizeof state_now);
    all.append(reinterpret_cast<const char *>(&options), sizeof options);
    for (gsc_optimizer *o :
         {step.trainer.get(), over_params.get(), over_grads.get(), over_copies.get(), over_state.get()}) {
      auto group = with_size<gsc_optimizer_options>();
      int32_t groups = 0;
      EXPECT_GSC_OK(gsc_optimizer_get_options(o, 0, &group));
      EXPECT_GSC_OK(gsc_optimizer_get_group_count(o, &groups));
      all += text(applied_steps(o), ' ', group.lr, ' ', groups, ' ');
    }
    return all;
  }
};

/// Who may call in between.
enum Who : uint32_t { kStep = 1, kParams = 2, kGrads = 4, kCopies = 8, kState = 16, kAll = 31 };

/// A function with every optimizer; `refused` for these.
struct OptimizerRow {
  const char *function;
  std::function<gsc_status(World &, gsc_optimizer *)> call;
  uint32_t refused;
};
/// A function with every list of the step.
struct ListRow {
  const char *function;
  std::function<gsc_status(World &, gsc_tensor_list *)> call;
  bool refused;
};
/// A function with the step's scaler and nothing else of the step.
struct ScalerRow {
  const char *function;
  std::function<gsc_status(World &)> call;
  bool refused;
};

float one = 1.0F;
int64_t numbers[8] = {};
std::vector<char> memory(1 << 22);

gsc_status scale_loss(World &w) {
  static float loss = 3.0F, scaled = 0.0F;
  const gsc_tensor from = GSC_TENSOR_INIT(&loss, 1, GSC_FP32), to = GSC_TENSOR_INIT(&scaled, 1, GSC_FP32);
  const gsc_status status = gsc_scaler_scale(w.step.scaler, &from, &to, 1, nullptr);
  EXPECT_EQ(scaled, 3.0F * 64.0F);
  return status;
}
std::vector<void *> addresses(const gsc_tensor_list *list) {
  std::vector<void *> data;
  for (int64_t i = 0; i < kTensors; ++i) data.push_back(tensor_at(list, i).data);
  return data;
}
gsc_optimizer_options group_options() {
  gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
  options.lr = 0.5;
  return options;
}

#define ROW(function, refused, ...)                                                                                    \
  {                                                                                                                    \
#function, []([[maybe_unused]] World & w, [[maybe_unused]] auto *x) -> gsc_status { return __VA_ARGS__; }, refused \
  }
const OptimizerRow kOptimizerRows[] = {
    ROW(gsc_scaler_step_and_update, kAll, gsc_scaler_step_and_update(w.step.scaler, x, nullptr)),
    ROW(gsc_optimizer_step, kAll, gsc_optimizer_step(x, nullptr)),
    ROW(gsc_optimizer_step_scaled, kAll, gsc_optimizer_step_scaled(x, &one, nullptr, nullptr)),
    ROW(gsc_optimizer_zero_grads, kStep | kGrads, gsc_optimizer_zero_grads(x, nullptr)),
    {"gsc_optimizer_add_group",
     [](World &, gsc_optimizer *x) {
       const gsc_optimizer_options options = group_options();
       return gsc_optimizer_add_group(x, 0, 1, &options, nullptr);
     },
     kStep | kState},
    {"gsc_optimizer_set_options",
     [](World &, gsc_optimizer *x) {
       gsc_optimizer_options options = with_size<gsc_optimizer_options>();
       EXPECT_GSC_OK(gsc_optimizer_get_options(x, 0, &options));
       return gsc_optimizer_set_options(x, 0, &options, nullptr);
     },
     kStep},
    ROW(gsc_optimizer_set_lr, kStep, gsc_optimizer_set_lr(x, 0, 1e-3, nullptr)),
    ROW(gsc_optimizer_set_device_lr, kStep, gsc_optimizer_set_device_lr(x, 0, &one, nullptr)),
    ROW(gsc_optimizer_set_evaluating, kAll, gsc_optimizer_set_evaluating(x, 1, nullptr)),
    ROW(gsc_optimizer_set_steps, kStep, gsc_optimizer_set_steps(x, 0, 0, nullptr)),
    ROW(gsc_optimizer_set_tensor_steps, kStep, gsc_optimizer_set_tensor_steps(x, numbers, kTensors, nullptr)),
    ROW(gsc_optimizer_set_offsets, kStep, gsc_optimizer_set_offsets(x, numbers, kTensors, nullptr)),
    {"gsc_optimizer_save_sync",
     [](World &, gsc_optimizer *x) {
       int64_t bytes = 0;
       EXPECT_GSC_OK(gsc_optimizer_get_save_size(x, &bytes));
       return gsc_optimizer_save_sync(x, memory.data(), bytes, nullptr);
     },
     kStep | kState},
    {"gsc_optimizer_load_sync",
     [](World &w, gsc_optimizer *x) {
       const Image image = saved_image(w.other.trainer);
       return gsc_optimizer_load_sync(x, image.data(), std::ssize(image), nullptr);
     },
     kStep | kState},
    {"gsc_optimizer_get_options",
     [](World &, gsc_optimizer *x) {
       gsc_optimizer_options options = with_size<gsc_optimizer_options>();
       return gsc_optimizer_get_options(x, 0, &options);
     },
     0},
    {"gsc_optimizer_get_grads",
     [](World &, gsc_optimizer *x) {
       gsc_tensor_list *list = nullptr;
       return gsc_optimizer_get_grads(x, &list);
     },
     0},
    {"gsc_optimizer_get_state",
     [](World &, gsc_optimizer *x) {
       gsc_tensor_list *list = nullptr;
       return gsc_optimizer_get_state(x, 0, &list, nullptr);
     },
     0},
    ROW(gsc_optimizer_get_steps_sync, 0, gsc_optimizer_get_steps_sync(x, &numbers[6], nullptr, nullptr)),
    ROW(gsc_optimizer_get_tensor_steps_sync, 0,
        gsc_optimizer_get_tensor_steps_sync(x, std::vector<int64_t>(kTensors).data(), kTensors, nullptr)),
    ROW(gsc_optimizer_get_unchanged_sync, 0, gsc_optimizer_get_unchanged_sync(x, &numbers[6], nullptr)),
#define GETTER_ROW(getter, type)   \
  {#getter,                        \
   [](World &, gsc_optimizer *x) { \
     type number{};                \
     return getter(x, &number);    \
   },                              \
   0},
    GSC_OPTIMIZER_GETTERS(GETTER_ROW)
#undef GETTER_ROW
};
/// These go on with the step if it is the step's own optimizer.
const OptimizerRow kStepRows[] = {
    ROW(gsc_scaler_step, kAll & ~kStep, gsc_scaler_step(w.step.scaler, x, nullptr)),
    ROW(gsc_scaler_step_slice, kAll & ~kStep, gsc_scaler_step_slice(w.step.scaler, x, 1, &w.left, nullptr)),
    ROW(gsc_scaler_step, kAll, gsc_scaler_step(w.rival, x, nullptr)),
    ROW(gsc_scaler_step_slice, kAll, gsc_scaler_step_slice(w.rival, x, 1, &numbers[7], nullptr)),
    ROW(gsc_scaler_step_and_update, kAll, gsc_scaler_step_and_update(w.rival, x, nullptr)),
};

gsc_status create(World &w, const World::Lists &lists) {
  return status_of(gsc_optimizer_destroy, [&](gsc_optimizer **out) { return w.make(lists, out); });
}
int32_t apply = 0;
gsc_tensor tensor = {};
const char *name = nullptr;

const ListRow kListRows[] = {
    ROW(gsc_tensor_list_get_count, false, gsc_tensor_list_get_count(x, &numbers[6])),
    ROW(gsc_tensor_list_get_tensor, false, gsc_tensor_list_get_tensor(x, 0, &tensor)),
    ROW(gsc_tensor_list_get_name, false, gsc_tensor_list_get_name(x, 0, &name)),
    ROW(gsc_tensor_list_set_pointers, true, set_pointers(x, addresses(x))),
    ROW(gsc_tensor_list_set_present, true, gsc_tensor_list_set_present(x, nullptr, nullptr, kTensors, nullptr)),
    ROW(gsc_tensor_list_set_device_factor, true, gsc_tensor_list_set_device_factor(x, nullptr)),
    ROW(gsc_tensor_list_set_device_norms, true, gsc_tensor_list_set_device_norms(x, nullptr, kTensors)),
    ROW(gsc_tensor_list_diagnose_sync, true,
        gsc_tensor_list_diagnose_sync(x, std::vector<gsc_tensor_diagnosis>(kTensors).data(), nullptr, kTensors,
                                      nullptr)),
    ROW(gsc_scaler_check, true, gsc_scaler_check(w.step.scaler, x, nullptr)),
    ROW(gsc_scaler_check, true, gsc_scaler_check(w.rival, x, nullptr)),
    ROW(gsc_scaler_check_range, true, gsc_scaler_check_range(w.step.scaler, x, 0, 1, nullptr)),
    ROW(gsc_scaler_check_range, true, gsc_scaler_check_range(w.rival, x, 0, 1, nullptr)),
    ROW(gsc_scaler_unscale, true, gsc_scaler_unscale(w.step.scaler, x, nullptr)),
    ROW(gsc_scaler_unscale, true, gsc_scaler_unscale(w.rival, x, nullptr)),
    ROW(gsc_scaler_clip_grad_norm, true, gsc_scaler_clip_grad_norm(w.step.scaler, x, 1.0, GSC_NORM_L2, nullptr)),
    ROW(gsc_scaler_clip_grad_norm, true, gsc_scaler_clip_grad_norm(w.rival, x, 1.0, GSC_NORM_L2, nullptr)),
    ROW(gsc_scaler_clip_grad_value, true, gsc_scaler_clip_grad_value(w.step.scaler, x, 1.0, nullptr)),
    ROW(gsc_scaler_clip_grad_value, true, gsc_scaler_clip_grad_value(w.rival, x, 1.0, nullptr)),
    ROW(gsc_scaler_should_step_sync, true, gsc_scaler_should_step_sync(w.step.scaler, x, &apply, nullptr)),
    ROW(gsc_scaler_should_step_sync, true, gsc_scaler_should_step_sync(w.rival, x, &apply, nullptr)),
    ROW(gsc_scaler_discard, false, gsc_scaler_discard(w.rival, x)),
    ROW(gsc_optimizer_create, true, create(w, {.params = x, .grads = w.lists[3]})),
    ROW(gsc_optimizer_create, true, create(w, {.params = w.lists[5], .grads = x})),
    ROW(gsc_optimizer_create, true, create(w, {.params = w.lists[5], .grads = w.lists[3], .copies = x})),
    ROW(gsc_optimizer_create, true, create(w, {.params = w.lists[5], .grads = w.lists[3], .state = {x, x}})),
};
/// Reports of a list that the scaler has not checked fail, and of one that it has do not.
const ListRow kReportRows[] = {
    {"gsc_scaler_get_report_sync",
     [](World &w, gsc_tensor_list *x) {
       auto report = with_size<gsc_report>();
       return gsc_scaler_get_report_sync(w.step.scaler, x, &report, nullptr);
     },
     false},
    {"gsc_scaler_read_report_async",
     [](World &w, gsc_tensor_list *x) {
       auto report = with_size<gsc_report>();
       return gsc_scaler_read_report_async(w.step.scaler, x, &report, nullptr);
     },
     false},
    {"gsc_scaler_get_device_state",
     [](World &w, gsc_tensor_list *x) {
       auto state = with_size<gsc_device_state>();
       return gsc_scaler_get_device_state(w.step.scaler, x, &state);
     },
     false},
};
#undef ROW

#define ROW(function, refused, ...)                                                          \
  {                                                                                          \
#function, []([[maybe_unused]] World & w) -> gsc_status { return __VA_ARGS__; }, refused \
  }
gsc_status set_scaler_options(World &w) {
  gsc_scaler_options options = scaler_options(64.0F, 7);
  return gsc_scaler_set_options(w.step.scaler, &options, nullptr);
}
int32_t no_reduce(void *, double *, int64_t, gsc_stream) { return 0; }
const gsc_reducer kReducer = {sizeof(gsc_reducer), 0, &no_reduce, nullptr};
float scale = 0.0F;
gsc_history_entry history[4];
auto scaler_options_now = with_size<gsc_scaler_options>();
auto state_now = with_size<gsc_scaler_state>();

const ScalerRow kScalerRows[] = {
    ROW(gsc_scaler_update, true, gsc_scaler_update(w.step.scaler, nullptr)),
    ROW(gsc_scaler_step_and_update, true, gsc_scaler_step_and_update(w.step.scaler, w.other.trainer, nullptr)),
    ROW(gsc_scaler_set_options, true, set_scaler_options(w)),
    ROW(gsc_scaler_set_reducer, true, gsc_scaler_set_reducer(w.step.scaler, &kReducer)),
    ROW(gsc_scaler_set_reducer, true, gsc_scaler_set_reducer(w.step.scaler, nullptr)),
    ROW(gsc_scaler_scale, false, scale_loss(w)),
    ROW(gsc_scaler_get_scale_sync, false, gsc_scaler_get_scale_sync(w.step.scaler, &scale, nullptr)),
    ROW(gsc_scaler_get_history_sync, false,
        gsc_scaler_get_history_sync(w.step.scaler, history, 4, &numbers[6], nullptr)),
    ROW(gsc_scaler_get_options, false, gsc_scaler_get_options(w.step.scaler, &scaler_options_now)),
    ROW(gsc_scaler_get_state_sync, false, gsc_scaler_get_state_sync(w.step.scaler, &state_now, nullptr)),
    // Another optimizer and its lists, in the same iteration.
    ROW(gsc_scaler_check, false, gsc_scaler_check(w.step.scaler, w.other.trainer.grad_list(), nullptr)),
    ROW(gsc_scaler_check_range, false,
        gsc_scaler_check_range(w.step.scaler, w.other.trainer.grad_list(), 0, 1, nullptr)),
    ROW(gsc_scaler_unscale, false, gsc_scaler_unscale(w.step.scaler, w.other.trainer.grad_list(), nullptr)),
    ROW(gsc_scaler_clip_grad_norm, false,
        gsc_scaler_clip_grad_norm(w.step.scaler, w.other.trainer.grad_list(), 1.0, GSC_NORM_L2, nullptr)),
    ROW(gsc_scaler_clip_grad_value, false,
        gsc_scaler_clip_grad_value(w.step.scaler, w.other.trainer.grad_list(), 1.0, nullptr)),
    ROW(gsc_scaler_should_step_sync, false,
        gsc_scaler_should_step_sync(w.step.scaler, w.other.trainer.grad_list(), &apply, nullptr)),
    ROW(gsc_scaler_discard, false, gsc_scaler_discard(w.step.scaler, w.other.trainer.grad_list())),
    ROW(gsc_scaler_step, false, gsc_scaler_step(w.step.scaler, w.other.trainer, nullptr)),
    ROW(gsc_scaler_step_slice, false, gsc_scaler_step_slice(w.step.scaler, w.other.trainer, 1, &numbers[7], nullptr)),
};
#undef ROW

/// Where a step may stop: in its check, after it, and in its sweep.
const std::function<bool(World &)> kPlaces[] = {
    [](World &w) { return w.left > 0; },
    [](World &w) { return w.left <= (40000 + 64 * 3 + 1000) * 30; },
    [](World &w) { return w.left <= 100000; },
};

void go_to(World &w, const std::function<bool(World &)> &place) {
  do {
    ASSERT_GSC_OK(w.step.slice(1, &w.left));
    ASSERT_GT(w.left, 0);
  } while (!place(w));
}

/// Ends the step, and expects what an undisturbed one gives.
void expect_undisturbed(World &w) {
  World whole;
  ASSERT_GSC_OK(gsc_scaler_step(whole.step.scaler, whole.step.trainer, nullptr));
  while (w.left > 0) ASSERT_GSC_OK(w.step.slice(1, &w.left));
  EXPECT_TRUE(w.step.trainer.snapshot().same_with_grads(whole.step.trainer.snapshot()));
}

void expect_refused(World &w, const std::string &before, gsc_status status) {
  EXPECT_GSC_ERROR(status, GSC_ERROR_BAD_STATE, "");
  EXPECT_TRUE(w.bytes() == before) << "a refused call changes nothing";
}

TEST(BetweenSlices, EveryCallWaitsOrIsHarmless) {
  for (size_t p = 0; p < std::size(kPlaces); ++p) {
    SCOPED_TRACE(text("place ", p));
    World refusing;  // nothing changes it
    go_to(refusing, kPlaces[p]);
    const std::string before = refusing.bytes();
    const auto by_optimizer = [&](const OptimizerRow &row) {
      for (uint32_t who = kStep; who <= kState; who *= 2) {
        SCOPED_TRACE(text(row.function, " of optimizer ", who));
        const auto optimizer = [&](World &w) {
          return who == kStep     ? w.step.trainer.get()
                 : who == kParams ? w.over_params.get()
                 : who == kGrads  ? w.over_grads.get()
                 : who == kCopies ? w.over_copies.get()
                                  : w.over_state.get();
        };
        if ((row.refused & who) != 0) {
          expect_refused(refusing, before, row.call(refusing, optimizer(refusing)));
          continue;
        }
        World w;
        go_to(w, kPlaces[p]);
        EXPECT_GSC_OK(row.call(w, optimizer(w)));
        expect_undisturbed(w);
      }
    };
    for (const OptimizerRow &row : kOptimizerRows) by_optimizer(row);
    for (const OptimizerRow &row : kStepRows) by_optimizer(row);
    for (const ListRow &row : kListRows) {
      for (size_t i = 0; i < 5; ++i) {
        SCOPED_TRACE(text(row.function, " of list ", i));
        const gsc_status status = row.call(refusing, refusing.all_lists()[i]);
        if (row.refused) {
          expect_refused(refusing, before, status);
        } else {
          EXPECT_GSC_OK(status);
          EXPECT_TRUE(refusing.bytes() == before);
        }
      }
    }
    for (const ListRow &row : kReportRows) {
      for (gsc_tensor_list *list : refusing.all_lists()) {
        const gsc_status status = row.call(refusing, list);
        EXPECT_TRUE(status == GSC_OK || status == GSC_ERROR_BAD_STATE) << row.function;
      }
      EXPECT_GSC_OK(row.call(refusing, nullptr));
    }
    for (const ScalerRow &row : kScalerRows) {
      SCOPED_TRACE(row.function);
      if (row.refused) {
        expect_refused(refusing, before, row.call(refusing));
        continue;
      }
      World w;
      go_to(w, kPlaces[p]);
      EXPECT_GSC_OK(row.call(w));
      expect_undisturbed(w);
    }
    EXPECT_TRUE(refusing.bytes() == before);
    expect_undisturbed(refusing);
  }
}

TEST(BetweenSlices, EveryFunctionHasARow) {
  // These cancel the step, which slice_cancel_test.cpp covers, or make and end objects.
  std::set<std::string> known = {"gsc_scaler_set_scale",   "gsc_scaler_set_state", "gsc_scaler_create",
                                 "gsc_tensor_list_create", "gsc_scaler_destroy",   "gsc_optimizer_destroy",
                                 "gsc_tensor_list_destroy"};
  for (const OptimizerRow &row : kOptimizerRows) known.insert(row.function);
  for (const OptimizerRow &row : kStepRows) known.insert(row.function);
  for (const ListRow &row : kListRows) known.insert(row.function);
  for (const ListRow &row : kReportRows) known.insert(row.function);
  for (const ScalerRow &row : kScalerRows) known.insert(row.function);
  std::ifstream file(GSC_HEADER);
  ASSERT_TRUE(file.is_open());
  const std::string header((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::regex declaration(R"(GSC_API (?:gsc_status|void) (gsc_\w+)\(([^;]*)\);)");
  int found = 0;
  for (std::sregex_iterator it(header.begin(), header.end(), declaration), end; it != end; ++it) {
    const std::string arguments = (*it)[2];
    if (!std::regex_search(arguments, std::regex("gsc_(scaler|optimizer|tensor_list) "))) continue;
    ++found;
    EXPECT_TRUE(known.contains((*it)[1])) << (*it)[1] << " has no row";
  }
  EXPECT_GE(found, 50);
}

/// Ends of a step after which its lists are free again, for the other optimizers too.
TEST(BetweenSlices, EveryEndFreesTheLists) {
  const std::function<void(World &)> ends[] = {
      [](World &w) { EXPECT_GSC_OK(w.step.slice(INT64_MAX, &w.left)); },
      [](World &w) { EXPECT_GSC_OK(gsc_scaler_step(w.step.scaler, w.step.trainer, nullptr)); },
      [](World &w) { EXPECT_GSC_OK(gsc_scaler_discard(w.step.scaler, w.grads)); },
      [](World &w) { EXPECT_GSC_OK(gsc_scaler_discard(w.step.scaler, nullptr)); },
      [](World &w) { EXPECT_GSC_OK(gsc_scaler_set_scale(w.step.scaler, 64.0F, nullptr)); },
      [](World &w) {
        const gsc_scaler_state state = state_of(w.step.scaler);
        EXPECT_GSC_OK(gsc_scaler_set_state(w.step.scaler, &state, nullptr));
      },
      [](World &w) { w.step.scaler = nullptr; },
      [](World &w) { w.step.trainer.destroy_optimizer(); },
  };
  for (size_t p = 0; p < std::size(kPlaces); ++p) {
    for (size_t e = 0; e < std::size(ends); ++e) {
      SCOPED_TRACE(text("place ", p, ", end ", e));
      World w;
      go_to(w, kPlaces[p]);
      ends[e](w);
      for (gsc_optimizer *free : {w.over_params.get(), w.over_copies.get(), w.over_state.get()}) {
        EXPECT_GSC_OK(gsc_optimizer_step(free, nullptr));
      }
      gsc_tensor_diagnosis diagnosis[kTensors];
      for (const gsc_tensor_list *list : w.all_lists()) {
        EXPECT_GSC_OK(gsc_tensor_list_diagnose_sync(list, diagnosis, nullptr, kTensors, nullptr));
      }
    }
  }
}

}  // namespace
}  // namespace gsc_test
