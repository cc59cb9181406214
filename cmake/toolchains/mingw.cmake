# SPDX-License-Identifier: Apache-2.0
# Cross-compiles for Windows on x86-64 with the MinGW-w64 g++ of Debian and Ubuntu (g++-mingw-w64-x86-64-posix), whose
# <thread> works.
#   cmake --toolchain cmake/toolchains/mingw.cmake -DCMAKE_BUILD_TYPE=Release ..
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
# Programs carry the runtimes of C++ and the threads: where they run there are no DLLs of MinGW.
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32)
# Libraries and headers are the target's; programs are this machine's.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
