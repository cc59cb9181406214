# SPDX-License-Identifier: Apache-2.0
# Fails if an object file of the kernels defines a weak symbol: an inline function or template that other object files
# define too. The linker keeps one of them, maybe the one compiled for AVX-512, and the program dies on a processor
# without it. Run with -DNM=<nm> -DOBJECT=<file>. What the kernels compute is tested elsewhere.
execute_process(COMMAND ${NM} -C --defined-only ${OBJECT} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]* [VWuvw] [^\n]*" weak "${symbols}")
if(NOT symbols MATCHES " [TD] ")
  message(FATAL_ERROR "${OBJECT} defines nothing that could be called")
endif()
if(weak)
  list(JOIN weak "\n  " weak)
  message(FATAL_ERROR "${OBJECT} defines weak symbols; give them internal linkage:\n  ${weak}")
endif()
