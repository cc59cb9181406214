# SPDX-License-Identifier: Apache-2.0
# Runs SWIG into an empty folder and keeps what it makes inside of the package: SWIG has no setting for the interface of
# constants. Arguments: SWIG, INTERFACE, INCLUDES (a list of folders), OUTPUT (folder of Java files), WRAPPER (C file).
file(REMOVE_RECURSE ${OUTPUT})
file(MAKE_DIRECTORY ${OUTPUT})
list(TRANSFORM INCLUDES PREPEND -I)
execute_process(COMMAND ${SWIG} -java -module NativeCalls -package io.github.gradscaler ${INCLUDES} -outdir ${OUTPUT}
                        -o ${WRAPPER} ${INTERFACE}
                COMMAND_ERROR_IS_FATAL ANY)
set(constants ${OUTPUT}/NativeCallsConstants.java)
file(READ ${constants} text)
string(REPLACE "public interface" "interface" text "${text}")
file(WRITE ${constants} "${text}")
# A type that SWIG was told nothing about would show up as one of these.
file(GLOB opaque ${OUTPUT}/SWIGTYPE_*)
if(opaque)
  message(FATAL_ERROR "SWIG made classes for types without a typemap: ${opaque}")
endif()
