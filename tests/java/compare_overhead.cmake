# SPDX-License-Identifier: Apache-2.0
# Fails if a step and an update cost 2 microseconds a call, that is 4 for both, more in another language than in C.
# Arguments: REFERENCE (program), PROGRAM (a command as a list), LANGUAGE. Each prints nanoseconds.
foreach(which REFERENCE PROGRAM)
  execute_process(COMMAND ${${which}} OUTPUT_VARIABLE ${which}_ns OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  if(NOT ${which}_ns MATCHES "^[0-9]+$")
    message(FATAL_ERROR "${${which}} printed ${${which}_ns}")
  endif()
endforeach()
math(EXPR extra "${PROGRAM_ns} - ${REFERENCE_ns}")
message("step and update: C ${REFERENCE_ns} ns, ${LANGUAGE} ${PROGRAM_ns} ns, ${extra} ns more")
if(extra GREATER 4000)
  message(FATAL_ERROR "that is too much")
endif()
