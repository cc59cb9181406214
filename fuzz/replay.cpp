// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over files, or, without any, over random inputs that are always the same: a test of every build.
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/bytes.h"
#include "tests/support/buffer.h"

namespace {

std::string input;  ///< that is being run

void say_input(int) { std::fprintf(stderr, "in %s\n", input.c_str()); }

/// Bytes of which many are 0 or 255, where ranges of numbers end.
std::vector<uint8_t> random_bytes(gsc_test::Random &random) {
  std::vector<uint8_t> bytes(static_cast<size_t>(random.below(int64_t{1} << random.below(10))));
  for (uint8_t &byte : bytes) {
    const int64_t kind = random.below(8);
    byte = kind == 0 ? 0 : kind == 1 ? 255 : static_cast<uint8_t>(random.below(256));
  }
  return bytes;
}

}  // namespace

int main(int argc, char **argv) {
  std::signal(SIGABRT, say_input);
  for (int i = 1; i < argc; ++i) {
    input = argv[i];
    std::ifstream file(input, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const std::vector<uint8_t> exact(bytes.begin(), bytes.end());  // its end is where a sanitizer expects it
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
  }
  gsc_test::Random random(1);
  for (int i = 0; argc == 1 && i < 5000; ++i) {
    input = "random input " + std::to_string(i);
    const std::vector<uint8_t> bytes = random_bytes(random);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  return 0;
}
