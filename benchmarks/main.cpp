// SPDX-License-Identifier: Apache-2.0
// gradscaler_bench: the options of Google Benchmark, and --quick. Writes what the machine and the build are into the
// JSON. The other files have the benchmarks.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <gradscaler/gradscaler.hpp>
#include <string>

#include "measure.h"

namespace {

std::string first_line(const char *path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void describe_machine() {
  gsc_device_info info{};
  info.struct_size = sizeof info;
  gsc_device_get_info(GSC_DEVICE_CPU, 0, &info);
  benchmark::AddCustomContext("cpu", info.name);
  benchmark::AddCustomContext("cpu_level", std::to_string(info.level));
  benchmark::AddCustomContext("gradscaler", gsc_library_get_build_info());
  benchmark::AddCustomContext("transparent_hugepages", first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  benchmark::AddCustomContext("mode", bench::settings().quick ? "quick" : "full");
}

}  // namespace

int main(int argc, char **argv) {
  char **const end = std::remove_if(argv + 1, argv + argc, [](char *a) { return std::strcmp(a, "--quick") == 0; });
  if (end != argv + argc) bench::set_quick();
  argc = end - argv;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  describe_machine();
  bench::add_elementwise();
  bench::add_optimizers();
  bench::add_models();
  if (benchmark::RunSpecifiedBenchmarks() == 0) return 1;
  benchmark::Shutdown();
  return 0;
}
