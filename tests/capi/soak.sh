#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The long forms of tests that must not let memory or handles grow, for `scripts/test soak`: an hour of random programs
# against the oracle; 10^6 worlds of objects, 10^7 random calls that must match a model, 24 threads; 10^4
# cycles of loading and unloading.
cd "$(dirname "$0")/../.." || exit 1
{ cmake --preset full && cmake --build --preset full --target soak gradscaler; } \
  >build/soak_build.log 2>&1 || { tail -n 30 build/soak_build.log; exit 1; }
{ tests/oracle/random_programs.py --seconds 3600 && build/full/tests/capi/soak 1000000 10000000 24; } || exit
if cmake --build --preset full --target abi_dlopen_leak >/dev/null 2>&1; then
  build/full/tests/abi/abi_dlopen_leak build/full/lib/libgradscaler.so 10000
else
  echo "soak: loading and unloading left out, the C++ runtime is not linked into this library"
fi
