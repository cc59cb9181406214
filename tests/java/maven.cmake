# SPDX-License-Identifier: Apache-2.0
# Has Maven make the jar of classes, offline, from the folder that the build lays out for it, with the plugins that
# Debian packages; it must hold what the build's own jar holds. Arguments: MAVEN, PROJECT (that folder), REPOSITORY
# (Debian's), JAR (the build's own), WORK (a folder to fill).
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# The class files in a jar.
function(classes jar variable)
  execute_process(COMMAND ${CMAKE_COMMAND} -E tar tf ${jar} OUTPUT_VARIABLE names COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+[.]class" names "${names}")
  list(SORT names)
  set(${variable} "${names}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
# Maven takes notes in its repository: links, so that it does not in Debian's.
run(cp -rs ${REPOSITORY} ${WORK}/repository)
run(cp -r ${PROJECT} ${WORK}/project)
run(${MAVEN} -o -q -Dmaven.repo.local=${WORK}/repository -f ${WORK}/project/pom.xml package)
file(GLOB made ${WORK}/project/target/*.jar)
classes(${made} made_classes)
classes(${JAR} own_classes)
if(NOT own_classes OR NOT made_classes STREQUAL own_classes)
  message(FATAL_ERROR "Maven's jar has\n${made_classes}\nnot\n${own_classes}")
endif()
