# SPDX-License-Identifier: Apache-2.0
# Builds and runs a program as its user would: from copies of its source files and of a package, in an empty folder
# outside of the tree, with nothing of this build in the environment. COMMANDS is included there; it uses FILES, which
# are copied next to it, and run(<command...>).
execute_process(COMMAND mktemp -d OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
file(COPY ${FILES} DESTINATION ${folder})

# Commands find each other and a home, and nothing else.
function(run)
  execute_process(COMMAND env -i PATH=$ENV{PATH} HOME=${folder} DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1 ${ARGN}
                  WORKING_DIRECTORY ${folder} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    file(REMOVE_RECURSE ${folder})
    message(FATAL_ERROR "${ARGN}: ${result}")
  endif()
endfunction()

include(${COMMANDS})
file(REMOVE_RECURSE ${folder})
