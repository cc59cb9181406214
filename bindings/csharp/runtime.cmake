# SPDX-License-Identifier: Apache-2.0
# Finds the host of a .NET runtime of version 8 or later, which examples and tests run on: the system's, else the one
# that `scripts/setup csharp` puts into build/dotnet, which has no SDK. Sets GSC_DOTNET in the cache.

# Sets <fit> to FALSE for a host that has no such runtime.
function(gsc_check_dotnet fit host)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1 ${host} --list-runtimes
                  OUTPUT_VARIABLE runtimes ERROR_QUIET)
  if(NOT runtimes MATCHES "(^|\n)Microsoft\\.NETCore\\.App ([89]|[1-9][0-9]+)\\.")
    set(${fit} FALSE PARENT_SCOPE)
  endif()
endfunction()

# One that an earlier run has found may be gone.
set(fit TRUE)
if(GSC_DOTNET)
  gsc_check_dotnet(fit ${GSC_DOTNET})
endif()
if(NOT fit)
  unset(GSC_DOTNET CACHE)
endif()
file(GLOB wheel ${PROJECT_SOURCE_DIR}/build/dotnet/lib/python3*/site-packages/dnv/net/runtime/.net)
if(EXISTS "${wheel}/dotnet")
  # The wheel does not mark the host as a program.
  file(CHMOD ${wheel}/dotnet PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
                                         WORLD_EXECUTE)
endif()
find_program(GSC_DOTNET dotnet PATHS ${wheel} VALIDATOR gsc_check_dotnet)
