# SPDX-License-Identifier: Apache-2.0
# Runs `mvn verify` on a copy of a project in examples/java, with the jars that package.cmake has put into the local
# repository. Arguments: those of maven.cmake, PROJECT (its folder), WORK (a folder to fill), EXPECTED (a list of regular
# expressions that the output must match), MAVEN_VERSION (optional: fetched from Maven Central and used),
# MAVEN_ENVIRONMENT.
include(${CMAKE_CURRENT_LIST_DIR}/maven.cmake)
file(REMOVE_RECURSE ${WORK})
file(COPY ${PROJECT} DESTINATION ${WORK})
cmake_path(GET PROJECT FILENAME name)

if(MAVEN_VERSION)
  maven(${WORK} org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack
        -Dartifact=org.apache.maven:apache-maven:${MAVEN_VERSION}:zip:bin -DoutputDirectory=${WORK})
  file(CHMOD ${WORK}/apache-maven-${MAVEN_VERSION}/bin/mvn PERMISSIONS OWNER_READ OWNER_EXECUTE)
  set(MAVEN ${WORK}/apache-maven-${MAVEN_VERSION}/bin/mvn)
endif()
# Nothing is downloaded by the libraries themselves, and no file of theirs stays in the user's home.
list(APPEND MAVEN_ENVIRONMENT DJL_OFFLINE=true DJL_CACHE_DIR=${WORK}/djl ENGINE_CACHE_DIR=${WORK}/djl
     ORG_BYTEDECO_JAVACPP_CACHEDIR=${WORK}/javacpp OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1)
maven(${WORK}/${name} verify)
string(REGEX REPLACE "\\[INFO\\][^\n]*\n|SLF4J[^\n]*\n" "" shown "${maven_output}")
message("${shown}")
foreach(expected ${EXPECTED})
  if(NOT maven_output MATCHES "${expected}")
    message(FATAL_ERROR "the output has no: ${expected}")
  endif()
endforeach()
