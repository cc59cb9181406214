// SPDX-License-Identifier: Apache-2.0
//
// Runs every scenario file as a test of its own. The format is described in README.md; world.h has the objects that a
// scenario acts on and the meaning of each event. A file that cannot be read fails with a sentence that says why.
#include "files.h"
#include "world.h"

namespace gsc_test {
namespace {

class Scenario : public ::testing::TestWithParam<std::filesystem::path> {};

INSTANTIATE_TEST_SUITE_P(Conformance, Scenario, ::testing::ValuesIn(json_files(GSC_TEST_SCENARIOS)), file_name);

TEST_P(Scenario, Holds) {
  try {
    const Json file = read_json(GetParam());
    if (file.at("format").integer() != 1) throw std::runtime_error("format must be 1");
    World world(file);
    int index = 0;
    for (const Json &event : file.at("events").items()) {
      SCOPED_TRACE(text("event ", index++, ": ", event.at("do").string()));
      world.act(event);
      if (HasFailure()) return;
    }
    ASSERT_GT(index, 0) << "a scenario without events proves nothing";
  } catch (const std::exception &e) {
    FAIL() << GetParam().filename() << ": " << e.what();
  }
}

}  // namespace
}  // namespace gsc_test
