// SPDX-License-Identifier: Apache-2.0
#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <vector>

#include "machine.h"

namespace gsc::cuda::ptx::symbols {
namespace {

template <typename T>
std::vector<T> read(std::ifstream &file, uint64_t offset, std::size_t count) {
  std::vector<T> values(count);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char *>(values.data()), static_cast<std::streamsize>(count * sizeof(T)));
  return values;
}

/// The program's load address.
uintptr_t load_address() {
  uintptr_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info *info, std::size_t, void *out) {
        *static_cast<uintptr_t *>(out) = info->dlpi_addr;
        return 1;  // the program itself comes first
      },
      &address);
  return address;
}

/// Mangled names of all functions.
std::map<uintptr_t, std::string> read_functions() {
  std::map<uintptr_t, std::string> functions;
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const auto header = read<ElfW(Ehdr)>(file, 0, 1)[0];
  const auto sections = read<ElfW(Shdr)>(file, header.e_shoff, header.e_shnum);
  const uintptr_t base = load_address();
  for (const ElfW(Shdr) & section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const ElfW(Shdr) &names = sections[section.sh_link];
    const auto text = read<char>(file, names.sh_offset, names.sh_size);
    for (const ElfW(Sym) & symbol : read<ElfW(Sym)>(file, section.sh_offset, section.sh_size / sizeof(ElfW(Sym)))) {
      if ((symbol.st_info & 0xf) == STT_FUNC && symbol.st_value != 0) {
        functions[base + symbol.st_value] = text.data() + symbol.st_name;
      }
    }
  }
  return functions;
}

}  // namespace

std::string demangle(const char *name) {
  int status = 0;
  char *text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  const std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

std::string name_of(const void *address) {
  static const std::map<uintptr_t, std::string> functions = read_functions();
  const auto found = functions.find(reinterpret_cast<uintptr_t>(address));
  return found != functions.end() ? demangle(found->second.c_str()) : "";
}

}  // namespace gsc::cuda::ptx::symbols
