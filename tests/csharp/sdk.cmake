# SPDX-License-Identifier: Apache-2.0
# The fixtures once more by an SDK of .NET, with those for TorchSharp and ILGPU where their packages are in NuGet's
# cache, which `scripts/setup csharp` fills.
if(NOT GSC_SDK_ASSEMBLY)
  if(GSC_CSHARP_NATIVE)
    message(STATUS "C# tests: not on net8.0, nor with TorchSharp and ILGPU: no SDK of .NET 8 was found")
  endif()
  return()
endif()
set(project ${CMAKE_CURRENT_SOURCE_DIR}/sdk/Tests.csproj)
set(folder ${CMAKE_CURRENT_BINARY_DIR}/sdk)
set(common ${GSC_SDK_OFFLINE} -p:BaseIntermediateOutputPath=${folder}/obj/)
# With all packages, else with an NUnit of the system's.
file(GLOB nunit /usr/lib/cli/nunit.framework-2.6*/nunit.framework.dll)
set(options -p:Packages=true)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  execute_process(COMMAND ${GSC_SDK} restore ${project} ${common} ${options}
                  RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
else()
  set(failed TRUE) # no TorchSharp for others
endif()
if(failed)
  message(STATUS "C# tests: left out: TorchSharp and ILGPU: NuGet's cache does not have their packages"
                 " ('scripts/setup csharp' fetches them)")
  if(NOT nunit)
    message(STATUS "C# tests: left out on net8.0, NUnit 2.6 was not found")
    return()
  endif()
  list(GET nunit 0 nunit)
  set(options -p:Packages=false -p:Nunit=${nunit})
endif()
set(tests ${folder}/Tests.dll)
file(GLOB sources CONFIGURE_DEPENDS *.cs sdk/*.cs ${PROJECT_SOURCE_DIR}/examples/csharp/integrations/*.cs)
add_custom_command(
  OUTPUT ${tests}
  COMMAND ${GSC_SDK} build ${project} -c Release -o ${folder} ${common} ${options}
          -p:GradscalerAssembly=${GSC_SDK_ASSEMBLY} -p:GradscalerNative=${GSC_CSHARP_NATIVE}
  COMMAND ${CMAKE_COMMAND} -E touch ${tests}
  DEPENDS ${sources} ${project} gradscaler_csharp_sdk ${GSC_SDK_ASSEMBLY} COMMENT "C# tests by the .NET SDK" VERBATIM)
add_custom_target(csharp_sdk_tests ALL DEPENDS ${tests})
add_test(NAME csharp.sdk COMMAND ${GSC_SDK} exec ${tests} ${tests})
set_tests_properties(csharp.sdk PROPERTIES LABELS csharp TIMEOUT 300)
