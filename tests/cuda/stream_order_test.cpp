// SPDX-License-Identifier: Apache-2.0
//
// Calls on objects of one context are ordered, whatever their streams. Emulated streams do their work as late as
// possible, so a missing wait gives other results than the same calls on the CPU. The last test makes random calls
// (`drive` in tests/support/objects.h).
#include <deque>
#include <functional>

#include "tests/cuda/twin.h"

namespace gsc_test {
namespace {

namespace emulation = gsc::cuda::emulation;

/// While one lives, work is done as late as possible; at its end all of it is done.
struct Lazy {
  Lazy() { emulation::set_lazy_streams(true); }
  Lazy(const Lazy &) = delete;
  Lazy &operator=(const Lazy &) = delete;
  ~Lazy() { emulation::set_lazy_streams(false); }
};

struct Training {
  Training(const Context &context, int64_t count, Values values) : p(GSC_FP32, count), g(GSC_FP16, count) {
    Random random(3);
    p.fill(Values::kOrdinary, random);
    g.fill(values, random);
    params = make_list(context, {p.device_tensor()});
    grads = make_list(context, {g.device_tensor()});
    optimizer = make_optimizer(context, optimizer_options(GSC_SGD), params, grads);
  }
  Twin p, g;
  List params, grads;
  Optimizer optimizer;
};

TEST(StreamOrder, AnUpdateSeesTheOverflowOfAnotherStream) {
  const Context context = make_cuda_context(0);
  const Scaler scaler = make_scaler(context, 1024.0F);
  const Training good(context, 100, Values::kOrdinary);
  const Training bad(context, 100, Values::kWithInf);
  const DeviceStream a(0), b(0);
  {
    const Lazy lazy;
    ASSERT_GSC_OK(gsc_scaler_step(scaler.get(), bad.optimizer.get(), b.get()));
    ASSERT_GSC_OK(gsc_scaler_step(scaler.get(), good.optimizer.get(), a.get()));
    ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), a.get()));
    a.wait();
  }
  EXPECT_EQ(scale_of(scaler), 512.0F);
}

TEST(StreamOrder, OneStreamWaitsForNothing) {
  const Context context = make_cuda_context(0);
  const Scaler scaler = make_scaler(context, 1024.0F);
  const Training training(context, 100, Values::kOrdinary);
  const DeviceStream stream(0);
  for (const gsc_stream one : {gsc_stream{nullptr}, stream.get()}) {
    ASSERT_GSC_OK(gsc_scaler_step_and_update(scaler.get(), training.optimizer.get(), one));
    const int64_t before = emulation::event_wait_count();
    for (int i = 0; i < 3; ++i) {
      ASSERT_GSC_OK(gsc_scaler_unscale(scaler.get(), training.grads.get(), one));
      ASSERT_GSC_OK(gsc_scaler_step(scaler.get(), training.optimizer.get(), one));
      ASSERT_GSC_OK(gsc_scaler_update(scaler.get(), one));
    }
    EXPECT_EQ(emulation::event_wait_count(), before);
  }
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
    for (std::size_t home = 0; home < 2; ++home) {
      gsc_scaler_options options = scaler_options(1024.0F, 2);
      options.hysteresis = 1 + static_cast<int32_t>(random_.below(2));
      scalers_.push_back({home, make_scaler(cpu_[home], options), make_scaler(cuda_[home], options)});
    }
  }

  /// Calls at random, with the device as lazy as it can be.
  void run(int calls) {
    const Lazy lazy;
    for (int i = 0; i < calls && !::testing::Test::HasFailure(); ++i) call();
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
    std::size_t home;  ///< its context
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
    std::size_t home;
    Twin g;
    List cpu, cuda;
    std::deque<Side> sides;
  };

  void add_list(const int *devices) {
    const auto home = static_cast<std::size_t>(random_.below(3));
    const OnDevice current(devices[home]);
    const int64_t count = 1 + random_.below(3000);
    lists_.push_back({home, Twin(GSC_FP16, count), nullptr, nullptr, {}});
    Member &list = lists_.back();
    list.g.fill(Values::kOrdinary, random_);
    list.cpu = make_list(cpu_[home], {list.g.host_tensor()});
    list.cuda = make_list(cuda_[home], {list.g.device_tensor()});
    for (const int32_t kind : {GSC_SGD, GSC_ADAMW}) {
      list.sides.push_back({Twin(GSC_FP32, count), Twin(GSC_FP32, count), nullptr, nullptr, nullptr, nullptr});
      Side &side = list.sides.back();
      for (Twin *params : {&side.p, &side.other}) params->fill(Values::kOrdinary, random_);
      side.host_params = make_list(cpu_[home], {side.p.host_tensor()});
      side.params = make_list(cuda_[home], {side.p.device_tensor()});
      side.cpu = make_optimizer(cpu_[home], optimizer_options(kind), side.host_params, list.cpu);
      side.cuda = make_optimizer(cuda_[home], optimizer_options(kind), side.params, list.cuda);
    }
  }

  /// One of a context's streams, the default one among them.
  gsc_stream stream_of(std::size_t home) {
    const auto &streams = streams_[home];
    const int64_t i = random_.below(static_cast<int64_t>(streams.size()) + 1);
    return i == 0 ? nullptr : streams[static_cast<std::size_t>(i - 1)]->get();
  }

  /// Makes a call on both, which must take or refuse it alike. Returns whether they took it.
  bool both(const char *name, const std::function<gsc_status()> &on_cpu, const std::function<gsc_status()> &on_cuda) {
    const gsc_status expected = on_cpu();
    const gsc_status got = on_cuda();
    EXPECT_EQ(got, expected) << name << ": " << gsc_error_get_message();
    return expected == GSC_OK && got == GSC_OK;
  }

  /// New gradients, once all work is done: the caller's buffers are the caller's to order.
  void refill(Member &list) {
    emulation::set_lazy_streams(true);  // does all that is left
    constexpr Values kValues[] = {Values::kOrdinary, Values::kWithInf, Values::kWithNan};
    list.g.fill(kValues[random_.below(3)], random_);
  }

  void call() {
    const Pair<Scaler> &scaler = scalers_[static_cast<std::size_t>(random_.below(2))];
    Member &list = lists_[static_cast<std::size_t>(random_.below(static_cast<int64_t>(lists_.size())))];
    const Side &side = list.sides[static_cast<std::size_t>(random_.below(2))];
    gsc_scaler *const s[] = {scaler.cpu.get(), scaler.cuda.get()};
    gsc_tensor_list *const l[] = {list.cpu.get(), list.cuda.get()};
    gsc_optimizer *const o[] = {side.cpu.get(), side.cuda.get()};
    // of the device that the call works on
    const gsc_stream at_list = stream_of(list.home);
    const gsc_stream at_scaler = stream_of(scaler.home);
    const double number = random_.uniform(0.01, 2.0);
    const int place = list.home == 2 ? 1 : 0;
    const auto twice = [&](const char *name, const auto &f, gsc_stream stream) {
      return both(
          name, [&] { return f(0, gsc_stream{nullptr}); }, [&] { return f(1, stream); });
    };
    switch (random_.below(20)) {
      case 0:
        twice(
            "check", [&](int i, gsc_stream at) { return gsc_scaler_check(s[i], l[i], at); }, at_list);
        break;
      case 1:
        twice(
            "unscale", [&](int i, gsc_stream at) { return gsc_scaler_unscale(s[i], l[i], at); }, at_list);
        break;
      case 2:
        twice(
            "clip_grad_norm",
            [&](int i, gsc_stream at) { return gsc_scaler_clip_grad_norm(s[i], l[i], number, GSC_NORM_L2, at); },
            at_list);
        break;
      case 3:
        twice(
            "clip_grad_value", [&](int i, gsc_stream at) { return gsc_scaler_clip_grad_value(s[i], l[i], number, at); },
            at_list);
        break;
      case 4:
        twice(
            "step_and_update", [&](int i, gsc_stream at) { return gsc_scaler_step_and_update(s[i], o[i], at); },
            at_list);
        break;
      case 5:
        twice(
            "set_scale", [&](int i, gsc_stream at) { return gsc_scaler_set_scale(s[i], 1024.0F, at); }, at_scaler);
        break;
      case 6:
        twice(
            "discard", [&](int i, gsc_stream) { return gsc_scaler_discard(s[i], l[i]); }, at_list);
        break;
      case 7:
        twice(
            "set_lr", [&](int i, gsc_stream at) { return gsc_optimizer_set_lr(o[i], 0, number, at); }, at_list);
        break;
      case 8:
        twice(
            "optimizer_step", [&](int i, gsc_stream at) { return gsc_optimizer_step(o[i], at); }, at_list);
        break;
      case 9:
        refill(list);
        break;
      case 17:  // a stream at whose address another one was
        streams_[list.home][0] = nullptr;
        streams_[list.home][0] = std::make_unique<DeviceStream>(place);
        break;
      case 10: {
        const Twin &next = random_.below(2) == 0 ? side.p : side.other;
        void *host = next.host_data();
        void *device = next.device_data();
        twice(
            "set_pointers",
            [&](int i, gsc_stream at) {
              return gsc_tensor_list_set_pointers(i == 0 ? side.host_params.get() : side.params.get(),
                                                  i == 0 ? &host : &device, 1, at);
            },
            at_list);
        break;
      }
      case 11: {
        float scale[2] = {};
        twice(
            "get_scale_sync", [&](int i, gsc_stream at) { return gsc_scaler_get_scale_sync(s[i], &scale[i], at); },
            at_scaler);
        EXPECT_EQ(scale[1], scale[0]);
        break;
      }
      case 12: {
        gsc_report report[2] = {};
        report[0].struct_size = report[1].struct_size = sizeof(gsc_report);
        const auto read = [&](int i, gsc_stream at) { return gsc_scaler_get_report_sync(s[i], l[i], &report[i], at); };
        if (twice("get_report_sync", read, at_scaler)) expect_same_report(report[1], report[0]);
        break;
      }
      case 13: {
        gsc_report host{};
        auto *device = static_cast<gsc_report *>(emulation::allocate_pinned(sizeof(gsc_report)));
        *device = {};
        host.struct_size = device->struct_size = sizeof host;
        const auto read = [&](int i, gsc_stream at) {
          return gsc_scaler_read_report_async(s[i], l[i], i == 0 ? &host : device, at);
        };
        if (twice("read_report_async", read, at_scaler)) reports_.emplace_back(host, device);
        break;
      }
      case 14: {
        int64_t applied[2] = {};
        int64_t skipped[2] = {};
        twice(
            "get_steps_sync",
            [&](int i, gsc_stream at) { return gsc_optimizer_get_steps_sync(o[i], &applied[i], &skipped[i], at); },
            at_list);
        EXPECT_EQ(applied[1], applied[0]);
        EXPECT_EQ(skipped[1], skipped[0]);
        break;
      }
      case 15:
      case 16:
        twice(
            "step", [&](int i, gsc_stream at) { return gsc_scaler_step(s[i], o[i], at); }, at_list);
        break;
      default:
        twice(
            "update", [&](int i, gsc_stream at) { return gsc_scaler_update(s[i], at); }, at_scaler);
    }
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
  drive(5, kCalls, [](uint64_t seed) {
    World world(seed + 1);
    world.run(kCalls);
    world.expect_same();
  });
}

}  // namespace
}  // namespace gsc_test
