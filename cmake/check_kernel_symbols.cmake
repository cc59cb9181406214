# SPDX-License-Identifier: Apache-2.0
# Fails if an object file of the kernels defines a weak symbol with code: an inline function or template that object
# files for other instruction sets define too. The linker keeps one of them. Run with -DNM=<nm> and
# -DOBJECTS=<file>;<file>... What the kernels compute is tested elsewhere.
foreach(object ${OBJECTS})
  execute_process(COMMAND ${NM} --defined-only ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  if(NOT symbols MATCHES " [TDRS] ")
    message(FATAL_ERROR "${object} defines nothing that could be used")
  endif()
  # Addresses of the C++ runtime's personality routine are the same everywhere.
  string(REGEX REPLACE "[^\n]* V DW[.]ref[.][^\n]*" "" symbols "${symbols}")
  string(REGEX MATCHALL "[^\n]* [VWuvw] [^\n]*" weak "${symbols}")
  if(weak)
    list(JOIN weak "\n  " weak)
    message(FATAL_ERROR "${object} defines weak symbols; give them internal linkage:\n  ${weak}")
  endif()
endforeach()
