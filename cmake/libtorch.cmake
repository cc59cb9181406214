# SPDX-License-Identifier: Apache-2.0
# gsc_find_libtorch(<what>): the target gsc_libtorch, libtorch's headers and CPU libraries, and GSC_LIBTORCH_FOUND. They
# are those of GRADSCALER_LIBTORCH, a folder with include/ and lib/, or else of the PyTorch that the interpreter of the
# tests has. Without any, <what> is left out with one line.
#
# Not find_package(Torch): the package of a CUDA build insists on a CUDA toolkit, which nothing here compiles with.
# libtorch.so, which only joins the CPU's library and CUDA's, is not linked: programs that use a GPU need it.
set(GRADSCALER_LIBTORCH "" CACHE PATH "libtorch for its tests and examples; empty: that of Python_EXECUTABLE, OFF: none")

function(gsc_find_libtorch what)
  set(GSC_LIBTORCH_FOUND FALSE PARENT_SCOPE)
  if(GRADSCALER_SANITIZE STREQUAL "thread")
    message(STATUS "${what}: left out, libtorch is not built with ThreadSanitizer, which does not see its locks")
    return()
  endif()
  set(root "${GRADSCALER_LIBTORCH}")
  if("${root}" STREQUAL "")
    find_package(Python COMPONENTS Interpreter QUIET)
    if(Python_FOUND)
      # The folder alone: importing PyTorch takes seconds.
      execute_process(COMMAND ${Python_EXECUTABLE} -c
                      "import importlib.util as i; print(i.find_spec('torch').submodule_search_locations[0])"
                      OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
  endif()
  if(NOT EXISTS "${root}/include/torch/csrc/api/include/torch/torch.h" OR NOT EXISTS "${root}/lib/libtorch_cpu.so")
    message(STATUS "${what}: left out, there is no libtorch in GRADSCALER_LIBTORCH or in Python's PyTorch")
    return()
  endif()
  if(NOT TARGET gsc_libtorch)
    add_library(gsc_libtorch INTERFACE IMPORTED GLOBAL)
    target_include_directories(gsc_libtorch SYSTEM INTERFACE ${root}/include ${root}/include/torch/csrc/api/include)
    # The libraries of a CUDA build name further ones, which they find by themselves.
    target_link_libraries(gsc_libtorch INTERFACE ${root}/lib/libtorch_cpu.so ${root}/lib/libc10.so)
    target_link_options(gsc_libtorch INTERFACE -Wl,--allow-shlib-undefined)
    # Old wheels were built for GCC's old string, which their package declares.
    file(STRINGS ${root}/share/cmake/Torch/TorchConfig.cmake abi REGEX "_GLIBCXX_USE_CXX11_ABI=0")
    if(abi)
      target_compile_definitions(gsc_libtorch INTERFACE _GLIBCXX_USE_CXX11_ABI=0)
    endif()
  endif()
  set(GSC_LIBTORCH_FOUND TRUE PARENT_SCOPE)
endfunction()
