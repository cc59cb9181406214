# SPDX-License-Identifier: Apache-2.0
# Runs the tests of one target's kernels, unless their translation is, byte for byte, that of another target, whose test
# then is this one's too. Arguments: PROGRAM, KERNELS and OTHERS (kernels.cpp of this and of the other targets).
foreach(other ${OTHERS})
  execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files ${KERNELS} ${other} RESULT_VARIABLE differs OUTPUT_QUIET
                  ERROR_QUIET)
  if(differs EQUAL 0)
    message("the same code as in ${other}")
    return()
  endif()
endforeach()
execute_process(COMMAND ${PROGRAM} --gtest_brief=1 COMMAND_ERROR_IS_FATAL ANY)
