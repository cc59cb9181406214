// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over files, or, without any, over its file in seeds/, if it has one, and over random inputs that are
// always the same: a test of every build.
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

void run(const std::string &name, const std::vector<uint8_t> &bytes) {
  input = name;
  const std::vector<uint8_t> exact(bytes.begin(), bytes.end());  // its end is where a sanitizer expects it
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

#ifdef GSC_SEEDS
/// An input is a line of bytes in hexadecimal. False if the file cannot be read, or has something else.
bool run_seeds() {
  std::ifstream file(GSC_SEEDS);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line[0] == '#') continue;
    std::erase(line, ' ');
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < line.size(); i += 2) {
      const std::string digits = line.substr(i, 2);
      if (digits.size() != 2 || digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
        std::fprintf(stderr, "%s:%d: not bytes in hexadecimal\n", GSC_SEEDS, number);
        return false;
      }
      bytes.push_back(static_cast<uint8_t>(std::stoi(digits, nullptr, 16)));
    }
    run(GSC_SEEDS ":" + std::to_string(number), bytes);
  }
  return file.eof();
}
#endif

}  // namespace

int main(int argc, char **argv) {
  std::signal(SIGABRT, say_input);
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    run(argv[i], {bytes.begin(), bytes.end()});
  }
#ifdef GSC_SEEDS
  if (argc == 1 && !run_seeds()) return 1;
#endif
  gsc_test::Random random(1);
  for (int i = 0; argc == 1 && i < 5000; ++i) {
    run("random input " + std::to_string(i), random_bytes(random));
  }
  return 0;
}
