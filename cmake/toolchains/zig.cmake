# SPDX-License-Identifier: Apache-2.0
# Cross-compiles with `zig c++`: Clang with the headers and C libraries of every target in one package (PyPI: ziglang).
#   cmake --toolchain cmake/toolchains/zig.cmake -DGRADSCALER_TARGET=x86_64-linux-gnu.2.17 [-DGRADSCALER_ZIG=<zig>]
# The number after gnu is the oldest glibc that the result loads on. zig's C++ runtime, libc++, is linked in. scripts/platforms
# and scripts/package have the targets that are tested.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES GRADSCALER_TARGET GRADSCALER_ZIG)
if(NOT GRADSCALER_TARGET MATCHES "^([a-z0-9_]+)-(linux|windows|macos)(-gnu)?(\\.[0-9.]+)?$")
  message(FATAL_ERROR "GRADSCALER_TARGET is '${GRADSCALER_TARGET}'; it must be a target of zig such as x86_64-linux-gnu.2.17, x86_64-windows-gnu or aarch64-macos")
endif()
set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_MATCH_1})
set(system_linux Linux)
set(system_windows Windows)
set(system_macos Darwin)
set(CMAKE_SYSTEM_NAME ${system_${CMAKE_MATCH_2}})

file(GLOB zig_of_setup ${CMAKE_CURRENT_LIST_DIR}/../../build/zig/lib/python3*/site-packages/ziglang)
find_program(GRADSCALER_ZIG NAMES zig HINTS ${zig_of_setup})
if(NOT GRADSCALER_ZIG)
  message(FATAL_ERROR "zig was not found; scripts/setup zig installs it, or set GRADSCALER_ZIG")
endif()
# The licenses of what zig links in, which packages pass on: its compiler-rt, LLVM's C++ runtime, MinGW-w64's C runtime.
execute_process(COMMAND ${GRADSCALER_ZIG} env WORKING_DIRECTORY / OUTPUT_VARIABLE zig_env)
if(zig_env MATCHES "lib_dir[^\n\"]*[=:] *\"([^\"]*)\"")
  file(REAL_PATH ${CMAKE_MATCH_1} zig_lib BASE_DIRECTORY /)
  set(GSC_RUNTIME_LICENSES ${zig_lib}/../LICENSE ${zig_lib}/libcxx/LICENSE.TXT)
  if(CMAKE_SYSTEM_NAME STREQUAL "Windows")
    list(APPEND GSC_RUNTIME_LICENSES ${zig_lib}/libc/mingw/COPYING)
  endif()
endif()
# zig compiles the C and C++ runtimes for every combination of options, a minute each: with these the checks of CMake
# take those of a release. -s leaves out the symbols of the runtime, which are most of the file.
set(options -target ${GRADSCALER_TARGET} -O2 -s)
set(CMAKE_C_COMPILER ${GRADSCALER_ZIG} cc ${options})
set(CMAKE_CXX_COMPILER ${GRADSCALER_ZIG} c++ ${options})

# CMake wants tools that are one program.
foreach(tool ar ranlib rc)
  set(wrapper ${CMAKE_BINARY_DIR}/zig-${tool})
  if(NOT EXISTS ${wrapper})
    file(CONFIGURE OUTPUT ${wrapper} CONTENT "#!/bin/sh\nexec '${GRADSCALER_ZIG}' ${tool} \"$@\"\n" @ONLY)
    file(CHMOD ${wrapper} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  endif()
endforeach()
set(CMAKE_AR ${CMAKE_BINARY_DIR}/zig-ar)
set(CMAKE_RANLIB ${CMAKE_BINARY_DIR}/zig-ranlib)
set(CMAKE_RC_COMPILER ${CMAKE_BINARY_DIR}/zig-rc)

if(NOT CMAKE_FIND_ROOT_PATH)
  set(CMAKE_FIND_ROOT_PATH ${CMAKE_BINARY_DIR}/nothing-of-this-machine)
endif()
# Libraries and headers are the target's; programs are this machine's.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
