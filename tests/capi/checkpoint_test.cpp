// SPDX-License-Identifier: Apache-2.0
//
// Saved optimizers: the layout that docs/reference/abi.md describes, byte for byte, and damage that must not load.
#include <cinttypes>

#include "core/base/checksum.h"
#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

template <typename T>
T at(const Image &image, size_t offset) {
  return read_at<T>(image.data() + offset);
}

void sign(Image &image) {
  const size_t end = image.size() - 8;
  write_at(image.data() + end, gsc::checksum(image.data(), end));
}

Trainer trained(const Context &context) {
  Trainer trainer(context, {.options = optimizer_options(GSC_ADAMW), .counts = {3, 5}});
  Random random(1);
  for (int i = 0; i < 2; ++i) {
    trainer.fill_grads(random, 1.0);
    EXPECT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
  }
  return trainer;
}
class Checkpoint : public OnCpu {};

TEST_F(Checkpoint, HasTheLayoutThatIsDescribed) {
  const Trainer trainer = trained(context);
  const Image image = saved_image(trainer);
  ASSERT_EQ(image.size(), 96u + 2 * 16 + 2 * (3 + 5) * 4 + 8);
  EXPECT_EQ(std::memcmp(image.data(), "GSCOPT4\n", 8), 0);
  EXPECT_EQ(at<uint32_t>(image, 8), 0x01020304u);
  EXPECT_EQ(at<int32_t>(image, 12), GSC_ADAMW);
  EXPECT_EQ(at<int32_t>(image, 16), 2);
  EXPECT_EQ(at<int32_t>(image, 20), 0);
  EXPECT_EQ(at<int64_t>(image, 24), 2);
  EXPECT_EQ(at<int64_t>(image, 32), 2);
  EXPECT_EQ(at<int64_t>(image, 40), 0);
  EXPECT_EQ(at<int64_t>(image, 48), std::ssize(image));
  EXPECT_EQ(at<int64_t>(image, 96), 3);
  EXPECT_EQ(at<int64_t>(image, 104), GSC_FP32);
  EXPECT_EQ(at<int64_t>(image, 112), 5);
  EXPECT_EQ(at<int64_t>(image, 120), GSC_FP32);
  size_t offset = 128;
  for (int32_t slot = 0; slot < 2; ++slot) {
    for (size_t i = 0; i < 2; ++i) {
      const gsc_tensor tensor = trainer.state_tensor(slot, i);
      const size_t bytes = tensor.count * 4;
      EXPECT_EQ(std::memcmp(image.data() + offset, tensor.data, bytes), 0) << slot << " " << i;
      offset += bytes;
    }
  }
  EXPECT_EQ(at<uint64_t>(image, offset), gsc::checksum(image.data(), offset));
  EXPECT_EQ(offset + 8, image.size());
}

/// Of momentum buffers, whose last four bytes are a word alone.
TEST_F(Checkpoint, HasAChecksumOfAnyLength) {
  gsc_optimizer_options options = optimizer_options(GSC_SGD);
  options.momentum = 0.9;
  const Trainer trainer(context, {.options = options, .counts = {3}});
  const Image image = saved_image(trainer);
  ASSERT_EQ(image.size(), 96u + 16 + 3 * 4 + 8);
  EXPECT_EQ(at<uint64_t>(image, image.size() - 8), gsc::checksum(image.data(), std::ssize(image) - 8));
}

TEST_F(Checkpoint, NoFlippedBitLoads) {
  const Trainer trainer = trained(context);
  const Image image = saved_image(trainer);
  ASSERT_GSC_OK(gsc_optimizer_step(trainer, nullptr));
  const Snapshot before = trainer.snapshot();
  for (size_t bit = 0; bit < image.size() * 8; ++bit) {
    Image damaged = image;
    damaged[bit / 8] = static_cast<unsigned char>(damaged[bit / 8] ^ (1u << (bit % 8)));
    ASSERT_EQ(load_image(trainer, damaged), GSC_ERROR_INVALID_ARGUMENT) << bit;
  }
  for (size_t size = 0; size < image.size(); ++size) {
    ASSERT_EQ(load_image(trainer, Image(image.begin(), image.begin() + size)), GSC_ERROR_INVALID_ARGUMENT) << size;
  }
  EXPECT_TRUE(trainer.snapshot() == before);
  EXPECT_GSC_OK(load_image(trainer, image));
  EXPECT_EQ(applied_steps(trainer), 2);
}

/// Right checksums around wrong contents: what is refused then is refused for itself.
TEST_F(Checkpoint, ForeignOnesAreNamed) {
  const Trainer trainer = trained(context);
  const Image image = saved_image(trainer);
  const auto refused = [&](size_t offset, auto value, const char *words) {
    Image foreign = image;
    write_at(foreign.data() + offset, value);
    sign(foreign);
    EXPECT_INVALID(load_image(trainer, foreign), words);
    EXPECT_STREQ(last_error().argument, "buffer");
  };
  refused(6, '1', "format 4");
  refused(8, 0x04030201u, "other byte order");
  refused(8, 7u, "byte-order mark");
  refused(12, int32_t{GSC_LION}, "kind");
  refused(24, int64_t{3}, "3 tensors");
  refused(32, int64_t{-1}, "applied");
  refused(40, (int64_t{1} << 53) + 1, "skipped");
  for (const size_t offset : {56, 64, 72}) refused(offset, kInf, "average");
  refused(64, -1.0, "average");
  refused(80, int64_t{-1}, "average");
  refused(88, INT32_MIN, "average");
  refused(96, int64_t{4}, "has 4 elements");
  refused(104, int64_t{GSC_FP64}, "dtype");
  // Two slots: the byte of each must be that of a dtype, and those of slots that are not there 0.
  const int64_t full = GSC_FP32 | GSC_FP32 << 8;
  for (const int64_t odd : {int64_t{GSC_FP32} << 8, full | 1 << 16, full | int64_t{GSC_FP32} << 24,
                            full | int64_t{1} << 32, full | int64_t{1} << 56, full | INT64_MIN}) {
    refused(104, odd, "dtypes");
  }
  Image packed = image;
  write_at(packed.data() + 104, full);
  sign(packed);
  EXPECT_GSC_OK(load_image(trainer, packed));
  Image longer = image;
  longer.push_back(0);
  EXPECT_INVALID(load_image(trainer, longer), "size is");
  EXPECT_INVALID(gsc_optimizer_load_sync(trainer, image.data(), -1, nullptr), "size is -1");
  const auto size = std::ssize(longer);
  EXPECT_INVALID(gsc_optimizer_save_sync(trainer, longer.data(), size, nullptr), "size is");
  EXPECT_INVALID(gsc_optimizer_save_sync(trainer, longer.data(), size - 2, nullptr), "size is");
  Image edited = image;
  write_at(edited.data() + 88, 0.5f);
  char words[40];
  std::snprintf(words, sizeof words, "its checksum is %016" PRIx64, at<uint64_t>(edited, edited.size() - 8));
  EXPECT_INVALID(load_image(trainer, edited), words);
  sign(edited);
  EXPECT_GSC_OK(load_image(trainer, edited));
}

}  // namespace
}  // namespace gsc_test
