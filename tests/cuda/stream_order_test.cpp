// SPDX-License-Identifier: Apache-2.0
//
// Calls on objects of one context are ordered, whatever their streams, and those on lists of two devices under one
// scaler. Emulated streams do their work as late as possible, so a missing wait gives other results than the same calls
// on the CPU. The last test makes random calls (`drive` in tests/support/objects.h).
#include <deque>
#include <functional>
#include <optional>

#include "tests/cuda/training.h"

namespace gsc_test {
namespace {

gsc_report *pinned_report() {
  auto *const report = static_cast<gsc_report *>(emulation::allocate_pinned(sizeof(gsc_report)));
  *report = with_size<gsc_report>();
  return report;
}

TEST(StreamOrder, OneStreamWaitsForNothing) {
  const Context context = make_cuda_context(0);
  const Training training(context);
  const DeviceStream stream(0);
  for (const gsc_stream one : {gsc_stream{nullptr}, gsc_stream{stream}}) {
    ASSERT_GSC_OK(training.step(one));
    const int64_t before = emulation::event_wait_count();
    for (int i = 0; i < 3; ++i) {
      ASSERT_GSC_OK(gsc_scaler_unscale(training.scaler, training.grads, one));
      ASSERT_GSC_OK(gsc_scaler_step(training.scaler, training.optimizer, one));
      ASSERT_GSC_OK(gsc_scaler_update(training.scaler, one));
    }
    EXPECT_EQ(emulation::event_wait_count(), before);
  }
}

/// Nor does the first call on a stream, and a call in a capture only for calls in the same: CUDA would refuse to wait
/// for an event of another capture, or of none.
TEST(StreamOrder, CapturesWaitForTheirOwnCalls) {
  const Context context = make_cuda_context(0);
  const Training training(context);
  const DeviceStream streams[3] = {DeviceStream(0), DeviceStream(0), DeviceStream(0)};
  const int64_t before = emulation::event_wait_count();
  ASSERT_GSC_OK(training.step(streams[0]));
  EXPECT_EQ(emulation::event_wait_count(), before) << "there is nothing to wait for";
  for (const DeviceStream &stream : {std::cref(streams[1]), std::cref(streams[2])}) {
    emulation::begin_capture(stream);
    EXPECT_GSC_OK(training.step(stream.get()));
    EXPECT_TRUE(emulation::end_capture(stream));
    EXPECT_EQ(emulation::event_wait_count(), before) << "it is another's";
  }
  ASSERT_GSC_OK(training.step(streams[1]));
  EXPECT_EQ(emulation::event_wait_count(), before + 1) << "for the first step, which is in no graph";
}

/// A list of device 1, whose report a scaler of device 0 was asked for on a stream and has not read yet.
class UnreadReport : public testing::Test {
 protected:
  UnreadReport() {
    EXPECT_GSC_OK(gsc_scaler_check(first_, training_->grads, list_stream_.get()));
    norm_ = report_of(first_, training_->grads).grad_norm;
    emulation::set_lazy_streams(true);
    EXPECT_GSC_OK(gsc_scaler_read_report_async(first_, training_->grads, report_, stream_.get()));
  }
  ~UnreadReport() override {
    emulation::set_lazy_streams(false);  // all that is left is done
    EXPECT_EQ(report_->grad_norm, norm_);
  }

  const Context there_ = make_cuda_context(1), homes_[2] = {make_cuda_context(0), make_cuda_context(0)};
  const Scaler first_ = make_scaler(homes_[0], 1024.0F), second_ = make_scaler(homes_[1], 512.0F);
  const DeviceStream stream_{0}, list_stream_{1};
  const OnDevice current_{1};
  std::optional<Training> training_{there_};
  gsc_report *const report_ = pinned_report();
  double norm_ = 0.0;
};

TEST_F(UnreadReport, TheCheckOfAnotherScalerWaits) {
  ASSERT_GSC_OK(gsc_scaler_discard(first_, training_->grads));
  ASSERT_GSC_OK(gsc_scaler_check(second_, training_->grads, list_stream_.get()));
  EXPECT_GT(report_of(second_, training_->grads).grad_norm, norm_);
}

TEST_F(UnreadReport, MemoryIsFreedOnceItWasRead) {
  ASSERT_GSC_OK(gsc_scaler_update(first_, stream_.get()));
  training_->destroy();
  training_.emplace(there_, 1);  // frees what was released
  ASSERT_GSC_OK(training_->step(list_stream_.get()));
  EXPECT_EQ(scale_of(training_->scaler), 1024.0F);
}

/// The same objects on the CPU and on emulated devices: two contexts on device 0, one on device 1.
class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {
    constexpr int kDevices[] = {0, 0, 1};
    for (const int device : kDevices) {
      cpu_.push_back(make_context(1));
      cuda_.push_back(make_cuda_context(device));
      streams_.emplace_back();
      for (int i = 0; i < 3; ++i) streams_.back().push_back(std::make_unique<DeviceStream>(device));
    }
    for (int i = 0; i < 4; ++i) add_list(kDevices);
    for (size_t home = 0; home < 2; ++home) {
      gsc_scaler_options options = scaler_options(1024.0F, 2);
      options.hysteresis = 1 + random_.below(2);
      scalers_.push_back({home, make_scaler(cpu_[home], options), make_scaler(cuda_[home], options)});
    }
  }

  /// Calls at random, with the device as lazy as it can be.
  void run(int calls) {
    emulation::set_lazy_streams(true);
    for (int i = 0; i < calls && !testing::Test::HasFailure(); ++i) call();
    emulation::set_lazy_streams(false);  // all that is left is done
  }

  void expect_same() {
    for (Member &list : lists_) {
      EXPECT_TRUE(list.g.same());
      for (Side &side : list.sides) EXPECT_TRUE(side.p.same() && side.other.same());
    }
    for (const Pair<Scaler> &scaler : scalers_) expect_same_report(report_of(scaler.cuda), report_of(scaler.cpu));
    for (const auto &[host, device] : reports_) expect_same_report(*device, host);
    reports_.clear();
  }

 private:
  template <typename T>
  struct Pair {
    size_t home;  ///< its context
    T cpu, cuda;
  };
  /// Parameters, in one of two places, and their optimizer.
  struct Side {
    Twin p, other;
    List host_params, params;
    Optimizer cpu, cuda;
  };
  /// Gradients, which two optimizers use.
  struct Member {
    size_t home;
    Twin g;
    List cpu, cuda;
    std::deque<Side> sides;
  };

  void add_list(const int *devices) {
    const size_t home = random_.below(3);
    const OnDevice current(devices[home]);
    const int64_t count = 1 + random_.below(3000);
    lists_.push_back({home, Twin(GSC_FP16, count), nullptr, nullptr, {}});
    Member &list = lists_.back();
    list.g.fill(kOrdinary, random_);
    list.cpu = make_list(cpu_[home], {list.g.host_tensor()});
    list.cuda = make_list(cuda_[home], {list.g.device_tensor()});
    for (const int32_t kind : {GSC_SGD, GSC_ADAMW}) {
      list.sides.push_back({Twin(GSC_FP32, count), Twin(GSC_FP32, count), nullptr, nullptr, nullptr, nullptr});
      Side &side = list.sides.back();
      for (Twin *params : {&side.p, &side.other}) params->fill(kOrdinary, random_);
      side.host_params = make_list(cpu_[home], {side.p.host_tensor()});
      side.params = make_list(cuda_[home], {side.p.device_tensor()});
      side.cpu = make_optimizer(cpu_[home], optimizer_options(kind), side.host_params, list.cpu);
      side.cuda = make_optimizer(cuda_[home], optimizer_options(kind), side.params, list.cuda);
    }
  }

  /// One of a context's streams, the default one among them.
  gsc_stream stream_of(size_t home) {
    const auto &streams = streams_[home];
    const int64_t i = random_.below(std::ssize(streams) + 1);
    return i == 0 ? nullptr : streams[i - 1]->get();
  }

  /// New gradients, once all work is done: the caller's buffers are the caller's to order.
  void refill(Member &list) {
    emulation::set_lazy_streams(true);  // does all that is left
    constexpr Values kValues[] = {kOrdinary, kWithInf, kWithNan};
    list.g.fill(kValues[random_.below(3)], random_);
  }

  /// A call on both, which must take or refuse it alike.
  void call() {
    const Pair<Scaler> &scaler = scalers_[random_.below(2)];
    Member &list = lists_[random_.below(std::ssize(lists_))];
    const Side &side = list.sides[random_.below(2)];
    gsc_scaler *const s[] = {scaler.cpu, scaler.cuda};
    gsc_tensor_list *const l[] = {list.cpu, list.cuda}, *const params[] = {side.host_params, side.params};
    gsc_optimizer *const o[] = {side.cpu, side.cuda};
    // of the device that the call works on
    const gsc_stream at_list = stream_of(list.home);
    const gsc_stream at_scaler = stream_of(scaler.home);
    const double number = random_.uniform(0.01, 2.0);
    const Twin &place = random_.below(2) == 0 ? side.p : side.other;
    void *addresses[] = {place.host_data(), place.device_data()};
    float scale[2] = {};
    gsc_report read[] = {with_size<gsc_report>(), with_size<gsc_report>()}, sent = read[0], *received = nullptr;
    int64_t steps[2][2] = {};
#define CALL(function, on, ...) #function, on, [&](int i, [[maybe_unused]] auto at) { return function(__VA_ARGS__); }
    const struct {
      const char *name;
      gsc_stream stream;
      std::function<gsc_status(int i, gsc_stream at)> make;
    } calls[] = {
        {CALL(gsc_scaler_check, at_list, s[i], l[i], at)},
        {CALL(gsc_scaler_unscale, at_list, s[i], l[i], at)},
        {CALL(gsc_scaler_clip_grad_norm, at_list, s[i], l[i], number, GSC_NORM_L2, at)},
        {CALL(gsc_scaler_clip_grad_value, at_list, s[i], l[i], number, at)},
        {CALL(gsc_scaler_step_and_update, at_list, s[i], o[i], at)},
        {CALL(gsc_scaler_step, at_list, s[i], o[i], at)},
        {CALL(gsc_scaler_update, at_scaler, s[i], at)},
        {CALL(gsc_scaler_set_scale, at_scaler, s[i], 1024.0F, at)},
        {CALL(gsc_scaler_discard, nullptr, s[i], l[i])},
        {CALL(gsc_optimizer_set_lr, at_list, o[i], 0, number, at)},
        {CALL(gsc_optimizer_step, at_list, o[i], at)},
        {CALL(gsc_tensor_list_set_pointers, at_list, params[i], &addresses[i], 1, at)},
        {CALL(gsc_scaler_get_scale_sync, at_scaler, s[i], &scale[i], at)},
        {CALL(gsc_scaler_get_report_sync, at_scaler, s[i], l[i], &read[i], at)},
        {CALL(gsc_scaler_read_report_async, at_scaler, s[i], l[i], i == 0 ? &sent : (received = pinned_report()), at)},
        {CALL(gsc_optimizer_get_steps_sync, at_list, o[i], &steps[i][0], &steps[i][1], at)},
    };
#undef CALL
    constexpr int64_t kCalls = std::size(calls);
    const int64_t pick = random_.below(kCalls + 5);
    if (pick == kCalls) return refill(list);
    if (pick == kCalls + 1) {  // a stream at whose address another one was
      streams_[list.home][0] = nullptr;
      streams_[list.home][0] = std::make_unique<DeviceStream>(list.home == 2 ? 1 : 0);
      return;
    }
    // The others take steps and updates more often.
    const auto &call = calls[pick < kCalls ? pick : (pick < kCalls + 4 ? 6 : 5)];
    const gsc_status expected = call.make(0, nullptr);
    EXPECT_EQ(call.make(1, call.stream), expected) << call.name << ": " << gsc_error_get_message();
    EXPECT_EQ(scale[1], scale[0]);
    expect_same_report(read[1], read[0]);
    EXPECT_TRUE(std::equal(steps[1], steps[1] + 2, steps[0]));
    if (received != nullptr && expected == GSC_OK) reports_.emplace_back(sent, received);
  }

  Random random_;
  std::vector<Context> cpu_, cuda_;
  std::vector<std::vector<std::unique_ptr<DeviceStream>>> streams_;
  std::deque<Member> lists_;
  std::vector<Pair<Scaler>> scalers_;
  std::vector<std::pair<gsc_report, gsc_report *>> reports_;
};

TEST(StreamOrder, RandomCallsGiveTheResultsOfTheCpu) {
  constexpr int kCalls = 200;
  drive(30, kCalls, [](uint64_t seed) {
    World world(seed + 1);
    world.run(kCalls);
    world.expect_same();
  });
}

}  // namespace
}  // namespace gsc_test
