// SPDX-License-Identifier: Apache-2.0
//
// Function names from this program's own symbol table: how a launcher's kernel finds its PTX.
#pragma once

#include <string>

namespace gsc::cuda::ptx::symbols {

/// Demangled name of the function at `address`, without marks of internal linkage; "" if there is none.
std::string name_of(const void *address);
std::string demangle(const char *name);

}  // namespace gsc::cuda::ptx::symbols
