// SPDX-License-Identifier: Apache-2.0
//
// Numbers in messages have a decimal point in every locale of the process. Where the system has no locale with a
// comma, one is made in a temporary folder; without localedef the test is skipped.
#include <clocale>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>

#include "tests/support/trainer.h"

namespace gsc_test {
namespace {

/// Whether printf writes a comma now.
bool has_comma() {
  char text[8];
  std::snprintf(text, sizeof text, "%.1f", 0.5);
  return std::string(text) == "0,5";
}

/// Makes and selects a locale that differs from "C" in its numbers only.
bool set_made_locale(const std::filesystem::path &folder) {
#ifdef _WIN32
  (void)folder;
  return false;
#else
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "source")
      << "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3\nEND LC_NUMERIC\n";
  const std::string quoted = text("'", folder.string(), '/');
  // -c: the other categories are missing, which it warns of.
  const std::string command =
      text("localedef -c --no-archive -i ", quoted, "source' ", quoted, "comma' >", quoted, "log' 2>&1");
  if (std::system(command.c_str()) == -1) return false;
  setenv("LOCPATH", folder.c_str(), 1);
  return std::setlocale(LC_NUMERIC, "comma") != nullptr;
#endif
}

class Locale : public testing::Test {
 protected:
  void SetUp() override {
    for (const char *name : {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "German_Germany.1252"}) {
      if (std::setlocale(LC_NUMERIC, name) != nullptr && has_comma()) return;
    }
    if (set_made_locale(folder_) && has_comma()) return;
    GTEST_SKIP() << "there is no locale with a decimal comma";
  }
  void TearDown() override {
    std::setlocale(LC_NUMERIC, "C");
    std::filesystem::remove_all(folder_);
  }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("gradscaler-locale-" + std::to_string(std::random_device()()));
};

TEST_F(Locale, NumbersInErrorsHaveAPoint) {
  const Context context = make_context();
  gsc_scaler *scaler = nullptr;
  gsc_scaler_options options = scaler_options(0.5f);
  options.min_scale = 1.5f;
  EXPECT_INVALID(gsc_scaler_create(context, &options, &scaler), "is 0.5, below options.min_scale, which is 1.5");
  options = scaler_options();
  options.growth_factor = 1.0 + 1.5e-9;
  EXPECT_INVALID(gsc_scaler_create(context, &options, &scaler), "is 1+1.5e-09; a scale of 65536 times that");
  const Scaler made = make_scaler(context, 1.0f);
  EXPECT_INVALID(gsc_scaler_set_scale(made, -0.25f, nullptr), "is -0.25;");
  EXPECT_INVALID(gsc_scaler_set_scale(made, -1.25e-8f, nullptr), "is -1.25e-08;");
  EXPECT_INVALID(gsc_scaler_set_scale(made, -INFINITY, nullptr), "is -inf;");
  EXPECT_INVALID(gsc_scaler_set_scale(made, NAN, nullptr), "nan");
  Trainer trainer(context, {.options = optimizer_options(GSC_SGD), .counts = {4}});
  gsc_optimizer_options changed = optimizer_options(GSC_SGD);
  changed.lr = -0.125;
  EXPECT_INVALID(gsc_optimizer_set_options(trainer, 0, &changed, nullptr), "is -0.125;");
}

}  // namespace
}  // namespace gsc_test
