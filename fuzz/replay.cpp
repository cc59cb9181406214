// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over files and folders of inputs, in builds without libFuzzer: the corpora are tests of every build.
// Usage: fuzz_<target> PATH... [--expect N]; fails if there are not N inputs.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "fuzz/bytes.h"

namespace {

int run_file(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<uint8_t> exact(bytes.begin(), bytes.end());  // its end is where a sanitizer expects it
  return LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int argc, char **argv) {
  int files = 0, expected = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--expect" && i + 1 < argc) {
      expected = std::atoi(argv[++i]);
      continue;
    }
    if (!std::filesystem::is_directory(argv[i])) {
      run_file(argv[i]);
      ++files;
      continue;
    }
    for (const auto &entry : std::filesystem::directory_iterator(argv[i])) {
      run_file(entry.path());
      ++files;
    }
  }
  std::printf("%d inputs", files);
  if (expected != 0) std::printf(", %d expected", expected);
  std::printf("\n");
  return files > 0 && (expected == 0 || files == expected) ? 0 : 1;
}
