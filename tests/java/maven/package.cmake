# SPDX-License-Identifier: Apache-2.0
# Has Maven make, sign and publish (to a folder) what the build lays out for it. The jars must be the build's own, and
# have what Maven Central asks for: sources, Javadoc and signatures. Then the jars are in the local repository of the
# build, for the tests of projects that depend on them. Arguments: those of maven.cmake, PROJECT (that folder),
# JAVA_FOLDER (the build's own jars), VERSION, WORK (a folder to fill).
include(${CMAKE_CURRENT_LIST_DIR}/maven.cmake)

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
execute_process(COMMAND cp -r ${PROJECT} ${WORK}/project COMMAND_ERROR_IS_FATAL ANY)
set(goals -Dmaven.deploy.skip=false -DaltDeploymentRepository=staging::file://${WORK}/staging)

# A key that lives as long as the test.
find_program(GPG gpg)
if(GPG)
  execute_process(COMMAND mktemp -d OUTPUT_VARIABLE keys OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${GPG} --homedir ${keys} --batch --quiet --passphrase "" --quick-generate-key
                          "gradscaler test <test@example.org>" COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET ERROR_QUIET)
  set(ENV{GNUPGHOME} ${keys})
  list(APPEND goals -Psign)
endif()
maven(${WORK}/project ${goals} deploy)

# Same entries, same bytes; of the manifest what does not name the tool that wrote it.
function(unpack jar folder)
  file(ARCHIVE_EXTRACT INPUT ${jar} DESTINATION ${folder})
  set(manifest ${folder}/META-INF/MANIFEST.MF)
  file(STRINGS ${manifest} lines REGEX "^(Manifest-Version|Implementation-|Automatic-|Multi-|Enable-)")
  list(SORT lines)
  list(JOIN lines "\n" text)
  file(WRITE ${manifest} "${text}\n")
endfunction()
set(published ${WORK}/staging/io/github/gradscaler/gradscaler/${VERSION})
foreach(kind "" -sources -javadoc -natives-*)
  file(GLOB own ${JAVA_FOLDER}/gradscaler-${VERSION}${kind}.jar)
  cmake_path(GET own FILENAME name)
  if(GPG)
    execute_process(COMMAND ${GPG} --homedir ${keys} --batch --quiet --verify ${published}/${name}.asc ${published}/${name}
                    COMMAND_ERROR_IS_FATAL ANY ERROR_QUIET)
  endif()
  if(kind STREQUAL "-javadoc" AND EXISTS ${published}/${name})
    continue() # its text names the tool that wrote it
  endif()
  unpack(${own} ${WORK}/own${name})
  unpack(${published}/${name} ${WORK}/maven${name})
  execute_process(COMMAND diff -r ${WORK}/own${name} ${WORK}/maven${name} RESULT_VARIABLE different)
  if(different)
    message(FATAL_ERROR "${name}: Maven's is another than the build's")
  endif()
  file(GLOB_RECURSE entries RELATIVE ${WORK}/own${name} ${WORK}/own${name}/*)
  list(LENGTH entries count)
  message("${name}: the same ${count} entries")
  if(NOT "META-INF/LICENSE" IN_LIST entries OR NOT entries MATCHES "module-info")
    message(FATAL_ERROR "${name} lacks META-INF/LICENSE or its module: ${entries}")
  endif()
endforeach()

if(GPG)
  file(REMOVE_RECURSE ${keys})
endif()
