// SPDX-License-Identifier: Apache-2.0
// Bytes as a scenario file: the reader of tests/support/json.h, and scaler options out of what it read. A text is a value
// or an exception with a sentence; what was read is the same when it is read again.
#include <stdexcept>

#include "fuzz/bytes.h"
#include "tests/conformance/options.h"
#include "tests/support/json.h"

namespace {

using gsc_test::Json;

void look_at(const Json &value) {
  const auto quietly = [](auto read) {
    try {
      read();
    } catch (const std::runtime_error &error) {
      FUZZ_CHECK(error.what()[0] != '\0');
    }
  };
  quietly([&] { (void)value.number(); });
  quietly([&] { (void)value.integer(); });
  quietly([&] { (void)value.boolean(); });
  quietly([&] { (void)value.string(); });
  if (value.is_array()) {
    for (const Json &item : value.items()) look_at(item);
  }
  if (value.is_object()) {
    for (const auto &[name, member] : value.members()) {
      FUZZ_CHECK(&value.at(name) == &member);
      look_at(member);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const std::string text(reinterpret_cast<const char *>(data), size);
  try {
    const Json value = Json::parse(text);
    look_at(value);
    FUZZ_CHECK(Json::parse(" " + text + "\n").kind() == value.kind());
    const gsc_scaler_options base = GSC_SCALER_OPTIONS_INIT;
    (void)gsc_test::read_options(value, base);
  } catch (const std::runtime_error &error) {
    FUZZ_CHECK(error.what()[0] != '\0');
  }
  return 0;
}
