// SPDX-License-Identifier: Apache-2.0
// gradscaler_bench: the options of Google Benchmark, --quick, and --cpu_target=avx2 for another instruction set than the
// best. Writes what the machine and the build are into the JSON. The other files have the benchmarks.
#include <algorithm>
#include <fstream>
#include <gradscaler/gradscaler.hpp>
#include <string>
#include <string_view>

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
  benchmark::AddCustomContext("cpu_target", std::to_string(bench::settings().cpu_target));
  benchmark::AddCustomContext("mode", bench::settings().quick ? "quick" : "full");
}

}  // namespace

int main(int argc, char **argv) {
  constexpr std::string_view kTarget = "--cpu_target=";
  char **const end = std::remove_if(argv + 1, argv + argc, [&](std::string_view a) {
    if (a == "--quick") bench::set_quick();
    return a == "--quick" || (a.starts_with(kTarget) && bench::set_cpu_target(a.substr(kTarget.size())));
  });
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
