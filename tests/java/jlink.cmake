# SPDX-License-Identifier: Apache-2.0
# The consumer of examples/java in an image by jlink, which has no class path and no jar: with the module of the natives
# it runs, and without it the error names that module. Arguments: JDK (folder of its tools), JARS, CONSUMER (sources),
# PLATFORM (as in the module's name), WORK.
string(REPLACE ";" ":" path "${JARS}")
file(REMOVE_RECURSE ${WORK})
file(GLOB_RECURSE sources ${CONSUMER}/*.java)
execute_process(COMMAND ${JDK}/javac --release 11 -d ${WORK}/classes -p ${path} ${sources} COMMAND_ERROR_IS_FATAL ANY)
foreach(modules consumer,io.github.gradscaler.natives.${PLATFORM} consumer)
  execute_process(COMMAND ${JDK}/jlink -p ${WORK}/classes:${path} --add-modules ${modules} --output ${WORK}/${modules}
                  COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=JAVA_TOOL_OPTIONS ${WORK}/${modules}/bin/java
                          -m consumer/consumer.Step OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message("${modules}: ${output}")
  file(REMOVE_RECURSE ${WORK}/${modules})
endforeach()
