// SPDX-License-Identifier: Apache-2.0
//
// Every call with a stream is ordered after and before the calls on other streams that use one of its objects: a table
// of the calls, times the objects that each uses, times the two ways round. The function table's header says which calls
// there are and which objects they take, so that a call without a row fails. An optimizer's objects are all its lists.
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>

#include "tests/cuda/training.h"

namespace gsc_test {
namespace {

constexpr int kMostSlots = 5;

/// The lists of an optimizer: parameters, gradients, a copy, and the state slots.
using Lists = std::vector<gsc_tensor_list *>;
const char *const kListNames[] = {"params", "grads", "copy", "state 0", "state 1", "state 2", "state 3", "state 4"};

/// Separate tensors, lists and optimizer of one shape.
struct Part {
  Part(const Context &context, const gsc_optimizer_options &options)
      : params(make_list(context, device_tensors(p))),
        grads(make_list(context, device_tensors(g))),
        copy(make_list(context, device_tensors(c))),
        optimizer(make_optimizer(context, options, params, grads, copy)) {}
  Lists lists() const {
    Lists all = {params, grads, copy};
    for (int32_t slot = 0; slot < kMostSlots; ++slot) {
      gsc_tensor_list *state = nullptr;
      if (gsc_optimizer_get_state(optimizer, slot, &state, nullptr) == GSC_OK) all.push_back(state);
    }
    return all;
  }
  Twins make(int32_t dtype) {
    Twins twins;
    Random random(3);
    for (int i = 0; i < 2; ++i) add_filled(twins, random, dtype, 40);
    return twins;
  }
  Twins p = make(GSC_BF16), g = make(GSC_FP16), c = make(GSC_FP16);
  List params, grads, copy;
  Optimizer optimizer;
};

/// The objects of a call, a list of them that it is about, and for each list another optimizer that shares only it.
struct Objects {
  explicit Objects(int32_t kind) : options(make_options(kind)) {
    Random random(4);
    for (Twin *twin : {&x, &y}) twin->fill(kOrdinary, random);
    const Lists own = main.lists(), others = spare.lists();
    for (size_t i = 0; i < own.size(); ++i) {
      Lists shared = others;
      shared[i] = own[i];
      gsc_optimizer *made = nullptr;
      EXPECT_GSC_OK(gsc_optimizer_create(context, &options, shared[0], shared[1], shared[2], shared.data() + 3,
                                         static_cast<int32_t>(std::ssize(shared)) - 3, &made));
      neighbours.emplace_back(made);
    }
    lists = own;
  }
  static gsc_optimizer_options make_options(int32_t kind) {
    gsc_optimizer_options result = optimizer_options(kind);
    result.ema_decay = 0.9;
    result.master_format = GSC_MASTER_SPLIT16;
    return result;
  }
  gsc_report *pinned() {
    static auto *const report = static_cast<gsc_report *>(emulation::allocate_pinned(sizeof(gsc_report)));
    *report = with_size<gsc_report>();
    return report;
  }

  const Context context = make_cuda_context(0);
  const gsc_optimizer_options options;
  const Part main{context, options}, spare{context, options};
  const Scaler scaler = make_scaler(context, 1024.0F);
  gsc_optimizer *const optimizer = main.optimizer;
  gsc_tensor_list *const grads = main.grads;
  Twin x{GSC_FP32, 40}, y{GSC_FP32, 40};
  const TwinWord<float> lr{0.5F}, inverse{0.5F}, word{0.0F};
  const TwinWord<double> sum{0.0};
  std::vector<Optimizer> neighbours;  ///< per list
  Lists lists;
  size_t list = 0;  ///< the index of the one that a call on a list takes
  // What calls give.
  gsc_scaler_state state = with_size<gsc_scaler_state>();
  gsc_report report = with_size<gsc_report>();
  Image saved;
  int64_t numbers[2] = {};
  float number = 0.0F;
};

struct Call {
  const char *name;
  std::function<gsc_status(Objects &, gsc_stream)> run;
  std::function<gsc_status(Objects &)> prepare = nullptr;
  std::set<size_t> lists = {};  ///< that a call on `list` takes; empty: all
  int32_t kind = GSC_ADAMW;
};

gsc_status unscale(Objects &o) { return gsc_scaler_unscale(o.scaler, o.grads, nullptr); }
gsc_status step(Objects &o) { return gsc_scaler_step(o.scaler, o.optimizer, nullptr); }
gsc_status save(Objects &o) {
  o.saved = saved_image(o.optimizer);
  return GSC_OK;
}
std::vector<void *> addresses(gsc_tensor_list *list) { return {tensor_at(list, 0).data, tensor_at(list, 1).data}; }

#define RUN(...) [](Objects &o, gsc_stream stream) { return __VA_ARGS__; }
// A row by the function's name, which the table of functions has without gsc_.
#define CALL(function, ...) #function, RUN(gsc_##function(__VA_ARGS__, stream))
#define FROM_X_TO_Y(function, ...) \
#function, [](Objects &o, gsc_stream stream) {                           \
    const gsc_tensor from = o.x.device_tensor(), to = o.y.device_tensor(); \
    return gsc_##function(__VA_ARGS__, stream);                            \
  }

const std::vector<Call> &calls() {
  static const std::vector<Call> table = {
      {"tensor_list_set_pointers",
       RUN(gsc_tensor_list_set_pointers(o.lists[o.list], addresses(o.lists[o.list]).data(), 2, stream))},
      {"tensor_list_set_present", RUN(gsc_tensor_list_set_present(o.grads, nullptr, nullptr, 2, stream)), nullptr, {1}},
      {"tensor_list_diagnose_sync",
       [](Objects &o, gsc_stream stream) {
         gsc_tensor_diagnosis out[2] = {};
         return gsc_tensor_list_diagnose_sync(o.lists[o.list], out, nullptr, 2, stream);
       },
       nullptr,
       {0, 1, 2, 3, 4, 5}},  // the remainders are in codes
      {CALL(scaler_get_scale_sync, o.scaler, &o.number)},
      {FROM_X_TO_Y(scaler_scale, o.scaler, &from, &to, 1)},
      {CALL(scaler_step, o.scaler, o.optimizer)},
      {CALL(scaler_update, o.scaler), step},
      {CALL(scaler_step_and_update, o.scaler, o.optimizer)},
      {CALL(optimizer_zero_grads, o.optimizer)},
      {CALL(scaler_get_report_sync, o.scaler, o.grads, &o.report), step},
      {CALL(scaler_read_report_async, o.scaler, o.grads, o.pinned()), step},
      {"scaler_get_history_sync",
       [](Objects &o, gsc_stream stream) {
         gsc_history_entry entries[2] = {};
         return gsc_scaler_get_history_sync(o.scaler, entries, 2, o.numbers, stream);
       }},
      {CALL(optimizer_get_steps_sync, o.optimizer, &o.numbers[0], &o.numbers[1])},
      {CALL(scaler_unscale, o.scaler, o.grads)},
      {CALL(scaler_check, o.scaler, o.grads)},
      {CALL(scaler_clip_grad_norm, o.scaler, o.grads, 1e-4, GSC_NORM_L2), unscale},
      {CALL(scaler_clip_grad_value, o.scaler, o.grads, 1e-4), unscale},
      {"scaler_should_step_sync",
       [](Objects &o, gsc_stream stream) {
         int32_t apply = 0;
         return gsc_scaler_should_step_sync(o.scaler, o.grads, &apply, stream);
       }},
      {CALL(optimizer_step, o.optimizer)},
      {CALL(optimizer_step_scaled, o.optimizer, o.inverse.device(), nullptr)},
      {CALL(optimizer_set_options, o.optimizer, 0, &o.options)},
      {CALL(optimizer_set_lr, o.optimizer, 0, 0.25)},
      {CALL(optimizer_set_device_lr, o.optimizer, 0, o.lr.device())},
      {CALL(scaler_check_range, o.scaler, o.grads, 0, 2)},
      {CALL(scaler_get_state_sync, o.scaler, &o.state)},
      {CALL(scaler_set_state, o.scaler, &o.state),
       [](Objects &o) { return gsc_scaler_get_state_sync(o.scaler, &o.state, nullptr); }},
      {CALL(optimizer_set_steps, o.optimizer, 5, 1)},
      {CALL(optimizer_save_sync, o.optimizer, o.saved.data(), std::ssize(o.saved)), save},
      {CALL(optimizer_load_sync, o.optimizer, o.saved.data(), std::ssize(o.saved)), save},
      {"scaler_set_options",
       [](Objects &o, gsc_stream stream) {
         const gsc_scaler_options changed = scaler_options(1024.0F, 7);
         return gsc_scaler_set_options(o.scaler, &changed, stream);
       }},
      {CALL(scaler_set_scale, o.scaler, 8.0F)},
      {FROM_X_TO_Y(ops_unscale_check, (static_cast<void>(to), o.context.get()), &from, 1, o.word.device(),
                   o.inverse.device())},
      {"ops_update_scale",
       [](Objects &o, gsc_stream stream) {
         auto *const words = static_cast<float *>(o.x.device_data());
         return gsc_ops_update_scale(o.context, words, reinterpret_cast<int32_t *>(words + 2), words + 1, 2.0, 0.5, 10,
                                     stream);
       }},
      {FROM_X_TO_Y(ops_scale, o.context, &from, &to, 1, o.word.device())},
      {FROM_X_TO_Y(ops_axpby, o.context, 0.5, &from, 0.25, &to, 1)},
      {FROM_X_TO_Y(ops_cast, o.context, &from, &to, 1)},
      {FROM_X_TO_Y(ops_norm, (static_cast<void>(to), o.context.get()), &from, 1, GSC_NORM_L2, o.sum.device(), nullptr)},
      {"optimizer_get_tensor_steps_sync", RUN(gsc_optimizer_get_tensor_steps_sync(o.optimizer, o.numbers, 2, stream))},
      {"optimizer_set_tensor_steps",
       [](Objects &o, gsc_stream stream) {
         const int64_t steps[2] = {5, 1};
         return gsc_optimizer_set_tensor_steps(o.optimizer, steps, 2, stream);
       }},
      {"optimizer_set_offsets",
       [](Objects &o, gsc_stream stream) {
         const int64_t offsets[2] = {32, 96};
         return gsc_optimizer_set_offsets(o.optimizer, offsets, 2, stream);
       }},
      {FROM_X_TO_Y(ops_convert_state, o.context, &from, nullptr, &to, 1)},
      {CALL(optimizer_get_unchanged_sync, o.optimizer, o.numbers)},
      {CALL(optimizer_set_evaluating, o.optimizer, 1), nullptr, {}, GSC_ADAMW_SCHEDULE_FREE},
      {CALL(scaler_step_slice, o.scaler, o.optimizer, INT64_MAX, o.numbers)},
  };
  return table;
}

/// The parameters of every function with a stream, by its name, as the function table's header has them.
const std::map<std::string, std::string> &signatures() {
  static const std::map<std::string, std::string> found = [] {
    std::ifstream file(GSC_TEST_API_H);
    const std::string header(std::istreambuf_iterator<char>(file), {});
    const std::regex field(R"(\(\*(\w+)\)\(([^;]*)\);)");
    std::map<std::string, std::string> result;
    for (std::sregex_iterator at(header.begin(), header.end(), field), end; at != end; ++at) {
      const std::string parameters = (*at)[2];
      if (parameters.find("gsc_stream ") != std::string::npos) result[(*at)[1]] = parameters;
    }
    return result;
  }();
  return found;
}

TEST(StreamCalls, TheTableHasEveryFunctionWithAStream) {
  std::set<std::string> rows, functions;
  for (const Call &call : calls()) rows.insert(call.name);
  for (const auto &[name, parameters] : signatures()) functions.insert(name);
  EXPECT_EQ(rows, functions);
  EXPECT_EQ(rows.size(), calls().size());
}

/// Something that other calls use, with work on it alone.
struct Object {
  std::string name;
  std::function<gsc_status(Objects &, gsc_stream)> work;
};

/// The objects of a call, from its parameters.
std::vector<Object> objects_of(const Call &call, size_t lists) {
  const std::string &parameters = signatures().at(call.name);
  const auto takes = [&](const char *what) { return parameters.find(what) != std::string::npos; };
  // The neighbour's step reads or writes the list.
  const auto list = [](size_t i) {
    return Object{kListNames[i], [i](Objects &o, gsc_stream stream) {
                    return gsc_optimizer_step_scaled(o.neighbours[i], o.inverse.device(), nullptr, stream);
                  }};
  };
  std::vector<Object> result;
  if (takes("gsc_scaler *")) {
    result.push_back(
        {"scaler", [](Objects &o, gsc_stream stream) { return gsc_scaler_set_scale(o.scaler, 8, stream); }});
  }
  if (takes("gsc_optimizer *")) {
    result.push_back({"optimizer", RUN(gsc_optimizer_set_lr(o.optimizer, 0, 0.125, stream))});
    for (size_t i = 0; i < lists; ++i) result.push_back(list(i));
  }
  if (takes("gsc_tensor_list *grads")) result.push_back(list(1));
  return result;
}

/// Streams that do their work as late as they can.
struct LateStreams {
  LateStreams() { emulation::set_lazy_streams(true); }
  LateStreams &operator=(LateStreams &&) = delete;
  ~LateStreams() { emulation::set_lazy_streams(false); }
  const DeviceStream first{0}, second{0};
};

class StreamCalls : public testing::TestWithParam<size_t> {
 protected:
  const Call &call = calls()[GetParam()];
  const bool waits = std::string(call.name).find("_sync") != std::string::npos;
  const bool takes_list = signatures().at(call.name).find("gsc_tensor_list *list") != std::string::npos;

  /// f(objects, object) for each object of the call, with new objects each time.
  template <typename F>
  void for_each_object(const F &f) const {
    const size_t lists = Objects(call.kind).lists.size();
    EXPECT_GE(lists, size_t{7});
    const auto run = [&](const Object &object, size_t list) {
      SCOPED_TRACE(object.name);
      Objects objects(call.kind);
      objects.list = list;
      if (call.prepare) {
        ASSERT_GSC_OK(call.prepare(objects));
      }
      f(objects, object);
    };
    for (const Object &object : objects_of(call, lists)) run(object, 0);
    for (size_t i = 0; takes_list && i < lists; ++i) {
      if (!call.lists.empty() && call.lists.count(i) == 0) continue;
      run({kListNames[i],
           [i](Objects &o, gsc_stream stream) {
             return gsc_optimizer_step_scaled(o.neighbours[i], o.inverse.device(), nullptr, stream);
           }},
          i);
    }
  }
};

TEST_P(StreamCalls, WaitForEarlierWorkOnEachObject) {
  for_each_object([&](Objects &objects, const Object &object) {
    // Ends the iteration that the call needs.
    if (object.name == "scaler" && call.prepare) return;
    const LateStreams streams;
    ASSERT_GSC_OK(object.work(objects, streams.first));
    ASSERT_GT(emulation::pending_work(streams.first), 0);
    ASSERT_GSC_OK(call.run(objects, streams.second));
    streams.second.wait();
    EXPECT_EQ(emulation::pending_work(streams.first), 0)
        << call.name << " does not wait for work on its " << object.name;
  });
}

TEST_P(StreamCalls, AreWaitedForByLaterWorkOnEachObject) {
  for_each_object([&](Objects &objects, const Object &object) {
    const LateStreams streams;
    ASSERT_GSC_OK(call.run(objects, streams.first));
    ASSERT_TRUE(waits || emulation::pending_work(streams.first) > 0) << "the call does nothing";
    ASSERT_GSC_OK(object.work(objects, streams.second));
    streams.second.wait();
    EXPECT_EQ(emulation::pending_work(streams.first), 0)
        << "work on its " << object.name << " does not wait for " << call.name;
  });
}

INSTANTIATE_TEST_SUITE_P(All, StreamCalls, testing::Range(size_t{0}, calls().size()),
                         [](const auto &info) { return std::string(calls()[info.param].name); });

/// What the tests above look for can be seen.
TEST(StreamCalls, WorkOnOtherObjectsIsNotWaitedFor) {
  Objects one(GSC_ADAMW), other(GSC_ADAMW);
  const LateStreams streams;
  ASSERT_GSC_OK(gsc_scaler_step_and_update(one.scaler, one.optimizer, streams.first));
  ASSERT_GSC_OK(gsc_scaler_step_and_update(other.scaler, other.optimizer, streams.second));
  streams.second.wait();
  EXPECT_GT(emulation::pending_work(streams.first), 0);
}

/// A list whose last work is that of a callback of the call, on the default stream, which the call has waited for
/// already because of another list.
TEST(StreamCalls, ACallWaitsForWorkOfItsCallbacks) {
  static Objects *running = nullptr;
  Objects objects(GSC_ADAMW);
  running = &objects;
  const auto step_neighbour = [](void *, double *, int64_t, gsc_stream) -> int32_t {
    return gsc_optimizer_step(running->neighbours[0], nullptr) == GSC_OK ? 0 : 1;
  };
  const gsc_reducer reducer = {sizeof reducer, 0, step_neighbour, nullptr};
  ASSERT_GSC_OK(gsc_scaler_set_reducer(objects.scaler, &reducer));
  ASSERT_GSC_OK(gsc_optimizer_step(objects.neighbours[1], nullptr));
  const LateStreams streams;
  ASSERT_GSC_OK(gsc_scaler_step(objects.scaler, objects.optimizer, streams.first));
  ASSERT_GT(emulation::pending_work(nullptr), 0);
  streams.first.wait();
  EXPECT_EQ(emulation::pending_work(nullptr), 0);
}

/// However many lists there are. The default stream needs none, before another stream has to wait.
TEST(StreamCalls, ACallRecordsOneEvent) {
  Objects objects(GSC_ADAMW);
  const DeviceStream streams[2] = {DeviceStream(0), DeviceStream(0)};
  const auto step_on = [&](gsc_stream stream, int64_t records, int64_t waits) {
    const int64_t recorded = emulation::event_record_count(), waited = emulation::event_wait_count();
    EXPECT_GSC_OK(gsc_optimizer_step(objects.optimizer, stream));
    EXPECT_EQ(emulation::event_record_count() - recorded, records);
    EXPECT_EQ(emulation::event_wait_count() - waited, waits);
  };
  step_on(nullptr, 0, 0);
  step_on(nullptr, 0, 0);
  step_on(streams[0], 2, 1);
  step_on(streams[0], 1, 0);
  step_on(streams[1], 1, 1);
  step_on(nullptr, 0, 1);
}

}  // namespace
}  // namespace gsc_test
