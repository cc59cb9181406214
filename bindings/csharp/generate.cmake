# SPDX-License-Identifier: Apache-2.0
# Runs SWIG into an empty folder. Arguments: SWIG, INTERFACE, INCLUDES (a list of folders), OUTPUT (folder of C# files),
# WRAPPER (C file).
file(REMOVE_RECURSE ${OUTPUT})
file(MAKE_DIRECTORY ${OUTPUT})
list(TRANSFORM INCLUDES PREPEND -I)
# Without SWIG's helpers for exceptions and strings: they hand delegates to native code.
execute_process(COMMAND ${SWIG} -csharp -DSWIG_CSHARP_NO_EXCEPTION_HELPER -DSWIG_CSHARP_NO_STRING_HELPER
                        -DSWIG_CSHARP_NO_IMCLASS_STATIC_CONSTRUCTOR -module NativeCalls -namespace Gradscaler
                        -dllimport gradscaler_csharp ${INCLUDES} -outdir ${OUTPUT} -o ${WRAPPER} ${INTERFACE}
                COMMAND_ERROR_IS_FATAL ANY)
# SWIG makes a class for the C type beneath every typemap, used or not. One that is used fails to compile.
file(GLOB unused ${OUTPUT}/SWIGTYPE_*.cs)
if(unused)
  file(REMOVE ${unused})
endif()
