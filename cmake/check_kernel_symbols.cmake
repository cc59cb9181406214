# SPDX-License-Identifier: Apache-2.0
# Fails if an object file of the kernels of an instruction set defines a weak symbol without the set's name in it: an
# inline function or template that object files for other sets may define too. The linker keeps one of them. Run with
# -DNM=<nm>, -DTARGET=<set> and -DOBJECTS=<file>;<file>... What the kernels compute is tested elsewhere.
string(LENGTH ${TARGET} length)
foreach(object ${OBJECTS})
  execute_process(COMMAND ${NM} --defined-only ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  if(NOT symbols MATCHES "${TARGET}")
    message(FATAL_ERROR "${object} defines nothing of ${TARGET}")
  endif()
  # Addresses of the C++ runtime's personality routine are the same everywhere.
  string(REGEX REPLACE "[^\n]* V DW[.]ref[.][^\n]*" "" symbols "${symbols}")
  string(REGEX MATCHALL "[^\n]* [VWuvw] [^\n]*" weak "${symbols}")
  list(FILTER weak EXCLUDE REGEX "gsc3cpu${length}${TARGET}")
  if(weak)
    list(JOIN weak "\n  " weak)
    message(FATAL_ERROR "${object} defines weak symbols; give them internal linkage, or the namespace of "
                        "the instruction set:\n  ${weak}")
  endif()
endforeach()
