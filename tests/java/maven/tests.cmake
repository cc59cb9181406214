# SPDX-License-Identifier: Apache-2.0
# The tests that need Maven and Maven Central: what is published, and the projects in examples/java that depend on it.
# They share a local repository in the build, and Maven 3.8 does not lock it: one at a time.
find_program(GSC_MAVEN mvn)
if(NOT GSC_MAVEN)
  message(STATUS "Java tests: all projects of Maven are left out, mvn was not found")
  return()
endif()
set(maven_arguments -DMAVEN=${GSC_MAVEN} -DREPOSITORY=${folder}/m2)
set(maven_properties LABELS "java\\;long" RESOURCE_LOCK maven SKIP_REGULAR_EXPRESSION "left out: ")

add_test(NAME java.maven
         COMMAND ${CMAKE_COMMAND} ${maven_arguments} -DNAME=java.maven -DPROJECT=${folder}/project
                 -DJAVA_FOLDER=${folder} -DVERSION=${PROJECT_VERSION}
                 -DWORK=${CMAKE_CURRENT_BINARY_DIR}/maven -P ${CMAKE_CURRENT_SOURCE_DIR}/maven/package.cmake)
set_tests_properties(java.maven PROPERTIES ${maven_properties} FIXTURES_SETUP java_artifacts TIMEOUT 600 COST 150)

# add_project(<test> <folder of examples/java> [options...]). All but one are nightly.
function(add_project name project)
  add_test(NAME java.${name}
           COMMAND ${CMAKE_COMMAND} ${maven_arguments} -DNAME=java.${name}
                   -DPROJECT=${PROJECT_SOURCE_DIR}/examples/java/${project}
                   -DWORK=${CMAKE_CURRENT_BINARY_DIR}/projects/${name} ${ARGN}
                   -P ${CMAKE_CURRENT_SOURCE_DIR}/maven/project.cmake)
  set_tests_properties(java.${name} PROPERTIES ${maven_properties} FIXTURES_REQUIRED java_artifacts TIMEOUT 900 COST 80)
  if(NOT name STREQUAL "consumer")
    set_tests_properties(java.${name} PROPERTIES LABELS "java;nightly")
  endif()
endfunction()
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  add_project(integrations integrations "-DEXPECTED=Tests run: 11")
  set(runs "-DEXPECTED=class path: weight -1.5, scale 32768.0\;module path: weight -1.5, scale 32768.0")
  add_project(consumer consumer ${runs})
  add_project(consumer_maven_3_9 consumer ${runs} -DMAVEN_VERSION=3.9.11)
  if(GSC_NEW_JDK)
    cmake_path(GET GSC_NEW_JDK PARENT_PATH home)
    add_project(consumer_new_jdk consumer ${runs} -DMAVEN_ENVIRONMENT=JAVA_HOME=${home})
  endif()
else()
  message(STATUS "Java tests: the projects of Maven are left out, their natives are for Linux on x86_64")
endif()
