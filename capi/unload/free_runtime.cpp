// SPDX-License-Identifier: Apache-2.0
// Unloading a shared library with a static C++ runtime: the runtime's emergency pool for exceptions, 72 704 bytes,
// would leak at every dlclose. Not part of the static library, where the runtime is the program's.

// In libstdc++ since 4.9 (eh_alloc.cc), for memory checkers; in no header.
namespace __gnu_cxx {
void __freeres();
}

namespace {

// The priority makes it the last of the library's destructors.
[[gnu::destructor(101)]] void free_runtime() { __gnu_cxx::__freeres(); }

}  // namespace
