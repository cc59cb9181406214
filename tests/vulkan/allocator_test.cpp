// SPDX-License-Identifier: Apache-2.0
//
// Device memory by the caller's allocator: the same results, everything given back, and an error for each way in which
// the callback can fail. And, by that allocator and by Vulkan's, how long memory is held: what no object needs any more
// is released, late enough for the work that uses it, and what is held is what gsc_context_get_memory reports.
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>

#include "core/rules/records.h"
#include "tests/cuda/twin.h"
#include "tests/vulkan/wrapped.h"

namespace gsc_test {
namespace {

/// Buffers whose addresses have no more alignment than the device requires.
class Allocator {
 public:
  gscx_vulkan_device with(gscx_vulkan_device handles) {
    handles.allocate = [](void *user, const void *info, int32_t mapped, gscx_vulkan_buffer *out) -> int32_t {
      Allocator &self = *static_cast<Allocator *>(user);
      const auto &create = *static_cast<const VkBufferCreateInfo *>(info);
      const auto size = static_cast<int64_t>(create.size);
      std::memset(out, 0x5a, sizeof *out);  // a call that fails may leave anything there
      if (const int32_t refused = self.refuse(); refused != VK_SUCCESS) return refused;
      if (self.bytes + size > self.budget) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
      *out = self.make(create, mapped != 0);
      ++self.made;
      ++self.live;
      self.bytes += self.sizes[out->buffer] = size;
      self.spoil(*out);
      return VK_SUCCESS;
    };
    handles.release = [](void *user, const gscx_vulkan_buffer *buffer) {
      Allocator &self = *static_cast<Allocator *>(user);
      self.on_release();
      ASSERT_EQ(self.sizes.count(buffer->buffer), 1U) << "this buffer was not made";
      self.bytes -= self.sizes[buffer->buffer];
      self.sizes.erase(buffer->buffer);
      self.destroy(*buffer);
      --self.live;
    };
    handles.allocator_user = this;
    return handles;
  }
  /// Called before each buffer is made, and with it.
  std::function<int32_t()> refuse = [] { return VK_SUCCESS; };
  std::function<void(gscx_vulkan_buffer &)> spoil = [](gscx_vulkan_buffer &) {};
  std::function<void()> on_release = [] {};
  std::function<gscx_vulkan_buffer(const VkBufferCreateInfo &, bool)> make =
      [](const VkBufferCreateInfo &info, bool mapped) { return vulkan_device()->make_buffer(info, mapped, true); };
  std::function<void(const gscx_vulkan_buffer &)> destroy = [](const gscx_vulkan_buffer &buffer) {
    vulkan_device()->destroy(buffer);
  };
  int made = 0, live = 0;
  int64_t bytes = 0, budget = INT64_MAX;  ///< of buffers that are live
  std::map<void *, int64_t> sizes;
};

std::vector<char> after_steps(const gscx_vulkan_device &handles) {
  const Context context = make_context(handles);
  Random random(5);
  Twin p(GSC_FP32, 700000), g(GSC_FP16, 700000);
  for (Twin *twin : {&p, &g}) twin->fill(Values::kOrdinary, random);
  const List params = make_list(context, {p.device_tensor()}), grads = make_list(context, {g.device_tensor()});
  const Scaler scaler = make_scaler(context, 16.0F);
  const Optimizer optimizer = make_optimizer(context, optimizer_options(GSC_LAMB), params, grads);
  for (int step = 0; step < 2; ++step) EXPECT_GSC_OK(gsc_scaler_step_and_update(scaler, optimizer, nullptr));
  std::vector<char> all = p.image();
  for (const unsigned char byte : saved_image(optimizer)) all.push_back(static_cast<char>(byte));
  return all;
}

class Allocators : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_DEVICE(); }
};

TEST_F(Allocators, OfTheCallerHoldAllMemory) {
  Allocator allocator;
  Wrapped wrapped;  // the functions that the library finds
  const std::vector<char> expected = after_steps(wrapped.handles());
  const int before = wrapped.allocations;
  EXPECT_TRUE(after_steps(allocator.with(wrapped.handles())) == expected);
  EXPECT_EQ(wrapped.allocations, before);
  EXPECT_GT(allocator.made, 2);  // mapped, and more than one block
  EXPECT_EQ(allocator.live, 0);
}

TEST_F(Allocators, OfTheCallerMustReturnABuffer) {
  const std::pair<std::function<void(gscx_vulkan_buffer &)>, const char *> cases[] = {
      {[](gscx_vulkan_buffer &b) { b.address = 0; }, "without an address"},
      {[](gscx_vulkan_buffer &b) { b.address += 8; }, "is not aligned to 16 bytes"},
      {[](gscx_vulkan_buffer &b) { b.mapped = nullptr; }, "without a mapped address"}};
  for (const auto &[spoil, why] : cases) {
    Allocator allocator;
    allocator.spoil = spoil;
    const gscx_vulkan_device handles = allocator.with(vulkan_device()->handles());
    gsc_context *made = nullptr;
    EXPECT_GSC_ERROR(gscx_context_create_vulkan(nullptr, &handles, &made), GSC_ERROR_CALLBACK, "device.allocate", why);
    EXPECT_EQ(allocator.live, 0);
  }
}

/// An error of the call, which can be tried again.
TEST_F(Allocators, OfTheCallerMayFail) {
  Allocator allocator;
  const gscx_vulkan_device handles = allocator.with(vulkan_device()->handles());
  {
    const Context context = make_context(handles);
    Twin p(GSC_FP32, 3 << 20), g(GSC_FP32, 3 << 20);
    const List params = make_list(context, {p.device_tensor()}), grads = make_list(context, {g.device_tensor()});
    const gsc_optimizer_options options = optimizer_options(GSC_ADAMW);
    const auto create = [&] {
      gsc_optimizer *made = nullptr;
      const gsc_status status =
          gsc_optimizer_create(context.get(), &options, params.get(), grads.get(), nullptr, nullptr, 0, &made);
      gsc_optimizer_destroy(made);
      return status;
    };
    allocator.refuse = []() -> int32_t { return VK_ERROR_OUT_OF_DEVICE_MEMORY; };
    EXPECT_GSC_ERROR(create(), GSC_ERROR_OUT_OF_MEMORY, "device.allocate", "VK_ERROR_OUT_OF_DEVICE_MEMORY");
    allocator.refuse = []() -> int32_t { throw std::bad_alloc(); };
    EXPECT_GSC_ERROR(create(), GSC_ERROR_OUT_OF_MEMORY, "there is no memory for the state \"exp_avg\": allocating ",
                     "bytes failed: device.allocate threw std::bad_alloc");
    allocator.refuse = []() -> int32_t { throw std::runtime_error("none"); };
    EXPECT_GSC_ERROR(create(), GSC_ERROR_CALLBACK, "device.allocate", "threw an exception");
    allocator.refuse = [] { return VK_SUCCESS; };
    EXPECT_GSC_OK(create());
  }
  EXPECT_EQ(allocator.live, 0);
}

/// A context whose device memory is limited, by either allocator.
class Limited : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_DEVICE();
    params_.emplace(kMost);
    grads_.emplace(kMost);
    handles_ = GetParam() ? allocator_.with(wrapped_.handles()) : wrapped_.handles();
    allocator_.on_release = [this] {
      EXPECT_TRUE(wrapped_.unfinished.empty()) << "a buffer is released, but work may use it";
    };
    context_ = make_context(handles_);
    at_first_ = held();
    EXPECT_EQ(reported(), held());
  }
  void TearDown() override {
    context_.reset();
    EXPECT_EQ(held(), 0);
    EXPECT_EQ(wrapped_.live, 0);
  }
  int64_t held() const { return GetParam() ? allocator_.bytes : wrapped_.bytes; }
  int buffers() const { return GetParam() ? allocator_.made : wrapped_.allocations; }
  int64_t reported() const {
    int64_t device = -1;
    EXPECT_GSC_OK(gsc_context_get_memory(context_, nullptr, &device));
    return device;
  }
  void limit(int64_t bytes) { allocator_.budget = wrapped_.budget = bytes; }
  /// With a state of about so many bytes. All share parameters and gradients.
  Optimizer make(int64_t bytes) {
    const int64_t count = bytes / 4;
    EXPECT_LE(bytes, kMost);
    const List params = make_list(context_, {GSC_TENSOR_INIT(params_->data(), count, GSC_FP32)});
    const List grads = make_list(context_, {GSC_TENSOR_INIT(grads_->data(), count, GSC_FP32)});
    return make_optimizer(context_, options(), params, grads);
  }
  static gsc_optimizer_options options() {
    gsc_optimizer_options all = optimizer_options(GSC_SGD);
    all.momentum = 0.9;
    return all;
  }
  static constexpr int64_t kMiB = int64_t{1} << 20, kMost = 24 * kMiB;

  Wrapped wrapped_;
  Allocator allocator_;
  gscx_vulkan_device handles_{};
  Context context_;
  int64_t at_first_ = 0;
  std::optional<DeviceBytes> params_, grads_;
};
INSTANTIATE_TEST_SUITE_P(All, Limited, ::testing::Bool(),
                         [](const auto &info) { return info.param ? "OfTheCaller" : "OfVulkan"; });

/// One optimizer at a time, each larger than the last.
TEST_P(Limited, LargeBuffersAreReleasedWithTheirObject) {
  limit(at_first_ + kMost + 8 * kMiB);
  for (const int64_t size : {6, 12, 18, 24}) {
    SCOPED_TRACE(size);
    {
      const Optimizer optimizer = make(size * kMiB);
      EXPECT_GE(held(), at_first_ + size * kMiB);
      EXPECT_EQ(reported(), held());
    }
    EXPECT_EQ(held(), at_first_);
    EXPECT_EQ(reported(), held());
  }
}

/// What is made later does not settle in the rest of a large buffer, and keep all of it.
TEST_P(Limited, SmallObjectsDoNotHoldLargeBuffers) {
  std::vector<Scaler> later;
  {
    const Optimizer optimizer = make(8 * kMiB);
    for (int i = 0; i < 32; ++i) later.push_back(make_scaler(context_, 1024.0F));
  }
  EXPECT_LT(held(), at_first_ + 8 * kMiB);
  EXPECT_EQ(reported(), held());
}

/// Buffers of 4 MiB for parts of 3: one that is empty is kept for the next object, and no more.
TEST_P(Limited, OneEmptyBufferIsKept) {
  const Optimizer filler = make(3 * kMiB);  // beside what the context holds from the start
  std::vector<Optimizer> all;
  for (int i = 0; i < 6; ++i) all.push_back(make(3 * kMiB));
  EXPECT_GE(held(), at_first_ + 5 * 4 * kMiB);
  all.clear();
  EXPECT_LE(held(), at_first_ + 4 * kMiB);
  EXPECT_EQ(reported(), held());
  const int before = buffers();
  for (int i = 0; i < 3; ++i) make(3 * kMiB);
  EXPECT_EQ(buffers(), before) << "the next object takes what is kept";
}

TEST_P(Limited, EmptyBuffersAreReleasedBeforeAnAllocationFails) {
  const Optimizer first = make(3 * kMiB);
  make(3 * kMiB).reset();
  const int64_t kept = held();
  ASSERT_GE(kept, at_first_ + 4 * kMiB);
  limit(kept + 4 * kMiB);
  const Optimizer larger = make(7 * kMiB);
  EXPECT_LE(held(), kept + 4 * kMiB);
  EXPECT_EQ(reported(), held());
  gsc_optimizer *made = nullptr;
  const gsc_optimizer_options all = options();
  const List params = make_list(context_, {GSC_TENSOR_INIT(params_->data(), 2 * kMiB, GSC_FP32)});
  const List grads = make_list(context_, {GSC_TENSOR_INIT(grads_->data(), 2 * kMiB, GSC_FP32)});
  const int64_t before = held();
  EXPECT_GSC_ERROR(gsc_optimizer_create(context_, &all, params, grads, nullptr, nullptr, 0, &made),
                   GSC_ERROR_OUT_OF_MEMORY, "VK_ERROR_OUT_OF_DEVICE_MEMORY");
  EXPECT_EQ(held(), before);
  EXPECT_EQ(reported(), held());
}

/// Stream NULL: the steps may be running when the optimizer goes. Wrapped and on_release see a buffer that goes first.
TEST_P(Limited, BuffersOutliveTheWorkThatUsesThem) {
  {
    const Optimizer optimizer = make(5 * kMiB);
    for (int step = 0; step < 2; ++step) EXPECT_GSC_OK(gsc_optimizer_step(optimizer, nullptr));
    EXPECT_FALSE(wrapped_.unfinished.empty());
  }
  EXPECT_EQ(held(), at_first_);
}

/// If waiting for that work fails, its buffers are kept until they can be released.
TEST_P(Limited, BuffersAreKeptIfTheWorkCannotBeWaitedFor) {
  const Scaler scaler = make_scaler(context_, 2.0F);
  Optimizer optimizer = make(8 * kMiB);
  EXPECT_GSC_OK(gsc_scaler_set_scale(scaler, 4.0F, nullptr));
  wrapped_.fail_at(1);
  optimizer.reset();
  EXPECT_EQ(wrapped_.failed(), "vkWaitForFences");
  EXPECT_GE(held(), at_first_ + 8 * kMiB);
  EXPECT_EQ(reported(), held());
  // They do not go where the large one was.
  const Optimizer small[] = {make(3 * kMiB), make(3 * kMiB)};
  limit(at_first_ + 13 * kMiB);
  make(8 * kMiB + kMiB / 2).reset();
  EXPECT_EQ(held(), at_first_ + 4 * kMiB);
}

/// Threads with their own objects in one context.
TEST_P(Limited, ThreadsMakeAndDestroyAtOnce) {
  constexpr int kThreads = 3;
  const std::vector<Scaler> scalers = [&] {
    std::vector<Scaler> all;
    for (int i = 0; i < kThreads; ++i) all.push_back(make_scaler(context_, 2.0F));
    return all;
  }();
  on_threads(kThreads, [&](int thread) {
    const auto part = [&](const DeviceBytes &memory) { return memory.data() + thread * 8 * kMiB; };
    for (int round = 0; round < 6; ++round) {
      const int64_t count = (1 + (thread + round) % 2) * kMiB;
      const List params = make_list(context_, {GSC_TENSOR_INIT(part(*params_), count, GSC_FP32)});
      const List grads = make_list(context_, {GSC_TENSOR_INIT(part(*grads_), count, GSC_FP32)});
      const Optimizer optimizer = make_optimizer(context_, options(), params, grads);
      EXPECT_GSC_OK(gsc_scaler_set_scale(scalers[static_cast<size_t>(thread)], 4.0F, nullptr));
    }
  });
  EXPECT_LE(held(), at_first_ + 4 * kMiB);
  EXPECT_EQ(reported(), held());
}

/// A caller's buffers of 4 MiB whose addresses fall and touch.
class Touching : public Allocators {
 protected:
  void SetUp() override {
    Allocators::SetUp();
    if (IsSkipped()) return;
    VkBufferCreateInfo whole{};
    whole.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    whole.size = static_cast<VkDeviceSize>(kSlots * kSlot);
    whole.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                  VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    arena_ = vulkan_device()->make_buffer(whole, true, false);
    allocator_.make = [this](const VkBufferCreateInfo &info, bool mapped) {
      if (static_cast<int64_t>(info.size) > kSlot || next_ == 0) ADD_FAILURE() << "the arena is full";
      --next_;
      const gscx_vulkan_buffer made{vulkan_device()->alias(arena_, info, next_ * kSlot), arena_.address + next_ * kSlot,
                                    mapped ? static_cast<char *>(arena_.mapped) + next_ * kSlot : nullptr, nullptr};
      return made;
    };
    allocator_.destroy = [](const gscx_vulkan_buffer &buffer) { vulkan_device()->destroy(buffer); };
    handles_ = allocator_.with(vulkan_device()->handles());
    context_ = make_context(handles_);
  }
  void TearDown() override {
    if (IsSkipped()) return;
    context_.reset();
    EXPECT_EQ(allocator_.live, 0);
    vulkan_device()->destroy(arena_);
  }
  static constexpr int64_t kMiB = int64_t{1} << 20, kSlot = 4 * kMiB, kSlots = 8;

  gscx_vulkan_buffer arena_{};
  int64_t next_ = kSlots;
  Allocator allocator_;
  gscx_vulkan_device handles_{};
  Context context_;
};

/// Parts that are given back join again, and no further buffer is made. None is in two buffers.
TEST_F(Touching, BuffersAreNotJoined) {
  const DeviceBytes memory(2 * kSlot);
  const auto make = [&](int64_t bytes) {
    const List params = make_list(context_, {GSC_TENSOR_INIT(memory.data(), bytes / 4, GSC_FP32)});
    const List grads = make_list(context_, {GSC_TENSOR_INIT(memory.data() + kSlot, bytes / 4, GSC_FP32)});
    gsc_optimizer_options options = optimizer_options(GSC_SGD);
    options.momentum = 0.9;
    return make_optimizer(context_, options, params, grads);
  };
  Optimizer kept[] = {make(3 * kMiB), make(3 * kMiB), make(3 * kMiB / 2)};
  const int before = allocator_.made;
  for (int i = 0; i < 8; ++i) {
    { const Optimizer halves[] = {make(kMiB), make(kMiB / 2)}; }
    make(2 * kMiB);
  }
  kept[1].reset();  // from here on both sides of an edge are free
  const Optimizer across = make(3 * kMiB);
  gsc_tensor_list *state = nullptr;
  gsc_tensor of{};
  ASSERT_GSC_OK(gsc_optimizer_get_state(across, 0, &state, nullptr));
  ASSERT_GSC_OK(gsc_tensor_list_get_tensor(state, 0, &of));
  const int64_t at = static_cast<int64_t>(reinterpret_cast<uint64_t>(of.data) - arena_.address);
  EXPECT_EQ(at / kSlot, (at + 3 * kMiB - 1) / kSlot) << "the state is in two buffers";
  EXPECT_EQ(allocator_.made, before);
}

/// The last part of a full buffer is given back while the buffer above it is empty, which stays of use.
TEST_F(Touching, FullBuffersAreNotJoined) {
  constexpr int64_t kRecord = (int64_t{sizeof(gsc::ScalerRecord)} + 255) / 256 * 256;
  const auto fill = [&](int64_t bytes) {  // by a scaler's record and its history
    gsc_scaler_options options = scaler_options(1024.0F);
    options.history_capacity = static_cast<int32_t>((bytes - kRecord) / int64_t{sizeof(gsc_history_entry)});
    return make_scaler(context_, options);
  };
  const Scaler rest = fill(kSlot - 65536);  // beside what the context holds from the start
  const int at_first = allocator_.made;
  Scaler upper = fill(kSlot), lower = fill(kSlot);
  ASSERT_EQ(allocator_.made, at_first + 2);
  upper.reset();
  lower.reset();
  const Scaler next = fill(kSlot);
  EXPECT_EQ(allocator_.made, at_first + 2) << "the empty buffer is taken";
}

}  // namespace
}  // namespace gsc_test
