# SPDX-License-Identifier: Apache-2.0
# For the tests that run Maven: maven(<folder> <arguments...>) stops unless Maven succeeds. Where it fails because a
# repository cannot be reached, the test ends with the line "left out: ..." instead, which ctest takes for a skipped one;
# with CI=true it fails if Maven has found JUnit in this tree. Arguments: MAVEN, REPOSITORY (the local repository of the
# build, which starts as links to the user's own, so that nothing is downloaded twice), NAME (of the test). Environment:
# JAVA_HOME as Maven has it.
cmake_policy(VERSION 3.25)
file(GLOB junit "${CMAKE_CURRENT_LIST_DIR}/../../../build/junit-platform-console-standalone-*.jar")

if(NOT EXISTS ${REPOSITORY})
  file(MAKE_DIRECTORY ${REPOSITORY})
  if(EXISTS $ENV{HOME}/.m2/repository)
    execute_process(COMMAND cp -rs $ENV{HOME}/.m2/repository/. ${REPOSITORY} COMMAND_ERROR_IS_FATAL ANY)
    # What Maven keeps about failed downloads is its own to write.
    file(GLOB_RECURSE failures ${REPOSITORY}/*.lastUpdated)
    if(failures)
      file(REMOVE ${failures})
    endif()
    file(REMOVE_RECURSE ${REPOSITORY}/io/github/gradscaler)
  endif()
endif()

function(maven folder)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env ${MAVEN_ENVIRONMENT} ${MAVEN} -B -ntp -Dmaven.repo.local=${REPOSITORY}
                          -Dstyle.color=never ${ARGN}
                  WORKING_DIRECTORY ${folder} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message("${output}")
    if((NOT "$ENV{CI}" STREQUAL "true" OR NOT junit) AND
       output MATCHES "Could not transfer|UnknownHost|Connection refused|Connect timed out|Network is unreachable")
      message("left out: ${NAME}, a repository of Maven cannot be reached")
      # ctest reads the line above before it looks at the exit status.
      message(FATAL_ERROR "")
    endif()
    message(FATAL_ERROR "${NAME}: Maven failed with ${result}")
  endif()
  set(maven_output "${output}" PARENT_SCOPE)
endfunction()
