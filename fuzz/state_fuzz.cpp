// SPDX-License-Identifier: Apache-2.0
// Bytes as the saved state of an optimizer and of a scaler. What loads must come out again as it went in; what does not
// must leave everything as it was.
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/base/checksum.h"
#include "fuzz/bytes.h"
#include "tests/support/trainer.h"

using gsc_fuzz::Bytes;

namespace {

struct Objects {
  gsc_test::Context context = gsc_test::make_context();
  gsc_test::Trainer trainer;
  gsc_test::Scaler scaler = gsc_test::make_scaler(context, 1024.0f);
  std::vector<uint8_t> image;

  explicit Objects(int32_t kind)
      : trainer(context, {.options = gsc_test::optimizer_options(kind), .counts = {3, 0, 5}}) {
    FUZZ_CHECK(gsc_optimizer_step(trainer.get(), nullptr) == GSC_OK);
    image = save();
  }
  std::vector<uint8_t> save() {
    int64_t bytes = 0;
    FUZZ_CHECK(gsc_optimizer_get_save_size(trainer.get(), &bytes) == GSC_OK);
    std::vector<uint8_t> result(static_cast<size_t>(bytes));
    FUZZ_CHECK(gsc_optimizer_save_sync(trainer.get(), result.data(), bytes, nullptr) == GSC_OK);
    return result;
  }
};

void load(Objects &objects, std::vector<uint8_t> image) {
  const std::vector<uint8_t> before = objects.save();
  const auto size = static_cast<int64_t>(image.size());
  if (gsc_optimizer_load_sync(objects.trainer.get(), image.data(), size, nullptr) == GSC_OK) {
    // Dtypes, of which each tensor has a word, can be written in several ways; the checksum is of them too.
    constexpr size_t kShapes = 96, kState = kShapes + 3 * 16;
    const std::vector<uint8_t> after = objects.save();
    FUZZ_CHECK(after.size() == image.size());
    FUZZ_CHECK(std::memcmp(after.data(), image.data(), kShapes) == 0);
    FUZZ_CHECK(std::memcmp(after.data() + kState, image.data() + kState, image.size() - 8 - kState) == 0);
  } else {
    FUZZ_CHECK(gsc_error_get_message()[0] != '\0');
    FUZZ_CHECK(objects.save() == before);
  }
}

void restore(Objects &objects, Bytes bytes) {
  // As long as the longest that is read: the size is noise, too.
  std::vector<uint64_t> room(4096 / sizeof(uint64_t));
  std::copy_n(bytes.data(), std::min<size_t>(bytes.size(), 4096), reinterpret_cast<uint8_t *>(room.data()));
  const auto *given = reinterpret_cast<const gsc_scaler_state *>(room.data());
  const gsc_scaler_state before = gsc_test::state_of(objects.scaler);
  const gsc_status status = gsc_scaler_set_state(objects.scaler.get(), given, nullptr);
  const gsc_scaler_state after = gsc_test::state_of(objects.scaler);
  auto state = gsc_test::with_size<gsc_scaler_state>();
  const size_t known = std::min<size_t>(given->struct_size, sizeof state);
  if (status == GSC_OK) std::memcpy(&state.format, &given->format, known - sizeof state.struct_size);
  // Bit for bit, but for -0.
  const bool same = std::memcmp(&after, status == GSC_OK ? &state : &before, sizeof after) == 0;
  FUZZ_CHECK(same || (status == GSC_OK && state.scale == 0.0f));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > 4096) return 0;
  Bytes bytes(data, size);
  const int64_t way = bytes.below(8);
  static const std::vector<int32_t> kinds = gsc_test::optimizer_kinds();
  Objects objects(bytes.pick(kinds));
  if (way == 0) {
    restore(objects, bytes);
  } else if (way == 1) {
    load(objects, std::vector<uint8_t>(bytes.data(), bytes.data() + bytes.size()));
  } else {
    // Edits of a right image, signed again or not: a fuzzer does not find the checksum by itself.
    std::vector<uint8_t> image = objects.image;
    while (!bytes.empty()) image[bytes.take<uint16_t>() % image.size()] = bytes.take<uint8_t>();
    const size_t end = image.size() - 8;
    const uint64_t sum = gsc::checksum(image.data(), static_cast<int64_t>(end));
    if (way < 6) std::memcpy(image.data() + end, &sum, sizeof sum);
    load(objects, image);
  }
  return 0;
}
