# SPDX-License-Identifier: Apache-2.0
# Settings of all compilations: language level, visibility, warnings, sanitizers, and the target gradscaler_internal for
# the library's sources and the tests of its internals.
if(MSVC)
  message(FATAL_ERROR "The kernels use the vector extensions and flags of GCC and Clang, which cl and clang-cl do not take; on Windows build with MinGW's g++ or zig c++ (docs/reference/platforms.md). Programs compiled by MSVC can use the DLL that results.")
endif()
include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)
include(CheckLinkerFlag)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
find_package(Threads REQUIRED)

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  endif()
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  if(WIN32)
    # Programs find a DLL in their folder.
    set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-Wall;-Wextra;-Wpedantic>")
endif()
if(GRADSCALER_WERROR)
  set(CMAKE_COMPILE_WARNING_AS_ERROR ON)
endif()
if(GRADSCALER_SANITIZE)
  set(GSC_SANITIZE_FLAGS -fsanitize=${GRADSCALER_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options(${GSC_SANITIZE_FLAGS})
  add_link_options(${GSC_SANITIZE_FLAGS})
endif()

# Not every distribution ships libstdc++.a. MinGW's threads are a separate library, which only -static links in.
if(GRADSCALER_STATIC_RUNTIME)
  set(GSC_STATIC_RUNTIME_FLAGS -static-libstdc++ -static-libgcc)
  if(WIN32 AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND GSC_STATIC_RUNTIME_FLAGS -static)
  endif()
  set(CMAKE_REQUIRED_LINK_OPTIONS ${GSC_STATIC_RUNTIME_FLAGS})
  check_cxx_source_compiles("#include <string>\nint main(int c, char **v) { return std::string(v[0]).size() == 1u * c; }"
                            GSC_HAVE_STATIC_RUNTIME)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
  if(NOT GSC_HAVE_STATIC_RUNTIME)
    message(STATUS "static C++ runtime: left out, this compiler has none to link")
  endif()
endif()

# Packages with such a runtime also have its license. zig.cmake names those of zig's runtimes; GCC's has an exception that
# requires nothing.
set(GSC_LICENSES ${PROJECT_SOURCE_DIR}/LICENSE)
if(GSC_RUNTIME_LICENSES)
  set(text "gradscaler is under the license in LICENSE. This build of it contains parts of the runtimes of its compiler, which are\nunder the following licenses.\n")
  foreach(file ${GSC_RUNTIME_LICENSES})
    file(READ ${file} license)
    string(APPEND text "\n==============================================================================\n\n${license}")
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/LICENSE-runtime.txt CONTENT "${text}" @ONLY)
  list(APPEND GSC_LICENSES ${PROJECT_BINARY_DIR}/LICENSE-runtime.txt)
endif()

# Keeps what is linked in from being exported. Not every linker has it; version scripts and export lists do the same.
check_linker_flag(CXX "LINKER:--exclude-libs,ALL" GSC_LINKER_EXCLUDES_LIBS)
set(GSC_EXCLUDE_LIBS $<$<BOOL:${GSC_LINKER_EXCLUDES_LIBS}>:LINKER:--exclude-libs,ALL>)

# Where CMake sees no SDK it takes macOS for one without @rpath: libraries would hold the path of their build.
if(APPLE AND NOT CMAKE_SHARED_LIBRARY_RUNTIME_C_FLAG)
  set(CMAKE_SHARED_LIBRARY_RUNTIME_C_FLAG "-Wl,-rpath,")
  set(CMAKE_SHARED_LIBRARY_RUNTIME_CXX_FLAG "-Wl,-rpath,")
endif()

add_library(gradscaler_internal INTERFACE)
target_include_directories(gradscaler_internal INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(gradscaler_internal INTERFACE Threads::Threads)
# Every instruction set and every platform must give the same bits: no fused multiply-add unless it is written.
# sqrt that may set errno is not vectorised.
target_compile_options(gradscaler_internal
                       INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off;-fno-math-errno;-fno-trapping-math>")
# Part of C++14, off by default in Clang before 19.
target_compile_options(gradscaler_internal INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,Clang,AppleClang>:-fsized-deallocation>)
