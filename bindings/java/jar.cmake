# SPDX-License-Identifier: Apache-2.0
# For package.cmake and package_natives.cmake: run(<command...>), and jar(<file> <options...>), which makes a jar with
# JAR. With SOURCE_DATE_EPOCH in the environment its entries have that date, where the JDK can do it (17 and later).
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(jar file)
  set(date)
  if(DEFINED ENV{SOURCE_DATE_EPOCH})
    execute_process(COMMAND ${JAR} --help OUTPUT_VARIABLE help)
    if(help MATCHES "--date=")
      string(TIMESTAMP date "--date=%Y-%m-%dT%H:%M:%SZ" UTC)
    endif()
  endif()
  run(${JAR} --create --file ${file} ${date} ${ARGN})
endfunction()
