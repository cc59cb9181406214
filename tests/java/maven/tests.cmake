# SPDX-License-Identifier: Apache-2.0
# The tests that need Maven and Maven Central: what is published, and the projects in examples/java that depend on it.
# They share a local repository in the build, and Maven 3.8 does not lock it: one at a time.
find_program(GSC_MAVEN mvn)
if(NOT GSC_MAVEN)
  message(STATUS "Java tests: all projects of Maven are left out, mvn was not found")
  return()
endif()
set(maven_arguments -DMAVEN=${GSC_MAVEN} -DREPOSITORY=${folder}/m2)
set(maven_properties LABELS java RESOURCE_LOCK maven SKIP_REGULAR_EXPRESSION "left out: ")

add_test(NAME java.maven
         COMMAND ${CMAKE_COMMAND} ${maven_arguments} -DNAME=java.maven -DPROJECT=${folder}/project
                 -DJAVA_FOLDER=${folder} -DVERSION=${PROJECT_VERSION} -DPYTHON=${GSC_PYTHON3}
                 -DWORK=${CMAKE_CURRENT_BINARY_DIR}/maven -P ${CMAKE_CURRENT_SOURCE_DIR}/maven/package.cmake)
set_tests_properties(java.maven PROPERTIES ${maven_properties} FIXTURES_SETUP java_artifacts TIMEOUT 600)
