# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Shared by scripts/platforms and scripts/package: the targets, and how to configure one and run its programs. Sourced
# from the root of the sources; sets all_targets.

# One row per target: name | zig's target | oldest glibc | how this machine runs it. Releases are built by zig; clang and
# mingw are Debian's compilers.
target_table='
linux-x86_64   | x86_64-linux-gnu.2.17  | 2.17 | here
linux-aarch64  | aarch64-linux-gnu.2.17 | 2.17 | qemu
linux-clang    | clang                  |      | here
windows-x86_64 | x86_64-windows-gnu     |      | wine
windows-mingw  | mingw                  |      | wine
macos-x86_64   | x86_64-macos.11.0      |      | nothing
macos-aarch64  | aarch64-macos.11.0     |      | nothing
'
wine_folder=$PWD/build/platforms/wine
all_targets=$(awk -F'|' 'NF > 1 { printf "%s ", $1 }' <<<"$target_table" | tr -s ' ')
# shellcheck disable=SC2034 # read by scripts/package
release_targets=${all_targets/linux-clang /} release_targets=${release_targets/windows-mingw /}

# Sets triple, glibc and runs_on of a target.
# shellcheck disable=SC2034 # read by callers
read_target() { # <target>
  local row
  row=$(grep "^$1 " <<<"$target_table") || { echo "no target '$1'; there are: $all_targets" >&2; return 2; }
  IFS='|' read -r _ triple glibc runs_on <<<"${row// /}"
}

# Prints why this machine cannot build for the target of read_target, or nothing.
why_not_built() {
  case $triple in
    clang) command -v clang++-14 >/dev/null || echo "no clang++-14 (scripts/setup clang)" ;;
    mingw) command -v x86_64-w64-mingw32-g++-posix >/dev/null || echo "no MinGW g++ (scripts/setup mingw)" ;;
  esac
}

# Prints why this machine has no zig, or nothing.
why_no_zig() {
  compgen -G 'build/zig/lib/python3*/site-packages/ziglang/zig' >/dev/null || command -v zig >/dev/null ||
    echo "zig was not found (scripts/setup zig)"
}

# Prints why programs for the target of read_target cannot run here, or nothing.
why_not_run() {
  case $runs_on in
    here) [ "$(uname -sm)" = "Linux x86_64" ] || echo "this is not Linux on x86-64" ;;
    qemu)
      [ "$(uname -sm)" = "Linux aarch64" ] && return
      if ! command -v qemu-aarch64 >/dev/null; then
        echo "qemu-aarch64 was not found (scripts/setup platforms)"
      elif [ ! -e /usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1 ]; then
        echo "libc6-arm64-cross was not found (scripts/setup platforms)"
      fi
      ;;
    wine) find_wine >/dev/null || echo "wine was not found (scripts/setup platforms)" ;;
    *) echo "nothing here runs it" ;;
  esac
}

# Debian's package wine64 installs it outside PATH.
find_wine() { command -v wine64 || command -v wine || { [ -x /usr/lib/wine/wine64 ] && echo /usr/lib/wine/wine64; }; }

# run_program <program> [arguments...]: runs a program for the target of read_target.
run_program() {
  case $runs_on in
    qemu)
      if [ "$(uname -m)" = aarch64 ]; then "$@"; else qemu-aarch64 -L /usr/aarch64-linux-gnu "$@"; fi
      ;;
    wine)
      # A separate prefix, without the browser and .NET that wine would offer to download.
      WINEPREFIX=$wine_folder WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" "$(find_wine)" "$@"
      ;;
    *) "$@" ;;
  esac
}

# configure_target <target> <folder> [options...]: a release build without bindings.
configure_target() {
  local target=$1 folder=$2 toolchain
  shift 2
  read_target "$target" || return
  case $triple in
    clang) toolchain=(-DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14) ;;
    mingw) toolchain=(--toolchain cmake/toolchains/mingw.cmake) ;;
    *) toolchain=(--toolchain cmake/toolchains/zig.cmake "-DGRADSCALER_TARGET=$triple") ;;
  esac
  cmake -G Ninja -S . -B "$folder" "${toolchain[@]}" \
    -DCMAKE_BUILD_TYPE=Release -DGRADSCALER_STATIC=OFF -DGRADSCALER_CUDA=OFF \
    -DGRADSCALER_BUILD_BENCHMARKS=OFF -DGRADSCALER_BUILD_EXAMPLES=OFF "$@"
}

# library_of <folder>: the shared library built there.
library_of() { find "$1/lib" "$1/bin" -type f \( -name 'libgradscaler.so.*' -o -name gradscaler.dll -o \
  -name 'libgradscaler.*.dylib' \) 2>/dev/null | head -n 1; }

# inspect <file> <check> [options...]: tests/abi's checks of a library.
inspect() {
  local file=$1 check=$2
  shift 2
  python3 tests/abi/inspect_library.py --library "$file" "$@" "$check"
}
