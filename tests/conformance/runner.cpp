// SPDX-License-Identifier: Apache-2.0
//
// Runs every scenario as a test. README.md describes the format; world.h has the objects that a scenario acts on and the
// meaning of each event.
#include "files.h"
#include "world.h"

namespace gsc_test {
namespace {

class Scenario : public ::testing::TestWithParam<Json> {};

INSTANTIATE_TEST_SUITE_P(Conformance, Scenario, ::testing::ValuesIn(read_json(GSC_SCENARIOS).at("scenarios")),
                         [](const auto &info) { return test_name(word(info.param.at("name"))); });

TEST_P(Scenario, Holds) {
  try {
    World world(GetParam());
    int index = 0;
    for (const Json &event : GetParam().at("events")) {
      SCOPED_TRACE(text("event ", index++, ": ", word(event.at("do"))));
      world.act(event);
      if (HasFailure()) return;
    }
    ASSERT_GT(index, 0) << "a scenario without events proves nothing";
  } catch (const std::exception &e) {
    FAIL() << e.what();
  }
}

}  // namespace
}  // namespace gsc_test
