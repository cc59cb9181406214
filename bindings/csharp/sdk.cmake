# SPDX-License-Identifier: Apache-2.0
# The C# binding by an SDK of .NET: Gradscaler.csproj for net8.0, as a user builds it. Packages come from NuGet's cache
# only, which `scripts/setup csharp` fills, never from the network. Sets for the tests
#   GSC_SDK_ASSEMBLY  the assembly, and its target, gradscaler_csharp_sdk
#   GSC_SDK           how to call `dotnet`
#   GSC_SDK_OFFLINE   options of its commands for that, and to leave no servers behind
set(no_packages ${CMAKE_CURRENT_BINARY_DIR}/no_packages)
file(MAKE_DIRECTORY ${no_packages})
set(GSC_SDK ${CMAKE_COMMAND} -E env DOTNET_CLI_TELEMETRY_OPTOUT=1 DOTNET_NOLOGO=1
            DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1 ${GSC_DOTNET})
set(GSC_SDK_OFFLINE -nologo -v:quiet --disable-build-servers -p:RestoreSources=${no_packages}
                    -p:NuGetAudit=false)
set(folder ${output}/net8.0)
set(GSC_SDK_ASSEMBLY ${folder}/Gradscaler.dll)
file(GLOB sources CONFIGURE_DEPENDS src/*.cs)
add_custom_command(
  OUTPUT ${GSC_SDK_ASSEMBLY}
  COMMAND ${GSC_SDK} build ${CMAKE_CURRENT_SOURCE_DIR}/Gradscaler.csproj -c Release -o ${folder} ${GSC_SDK_OFFLINE}
          -p:TargetFrameworks=net8.0 -p:GradscalerBuild=${PROJECT_BINARY_DIR}
          -p:BaseIntermediateOutputPath=${CMAKE_CURRENT_BINARY_DIR}/obj/
  COMMAND ${CMAKE_COMMAND} -E touch ${GSC_SDK_ASSEMBLY}
  DEPENDS ${sources} gradscaler_csharp Gradscaler.csproj COMMENT "C# assembly by the .NET SDK" VERBATIM)
add_custom_target(gradscaler_csharp_sdk ALL DEPENDS ${GSC_SDK_ASSEMBLY})
set(GSC_SDK ${GSC_SDK} PARENT_SCOPE)
set(GSC_SDK_OFFLINE ${GSC_SDK_OFFLINE} PARENT_SCOPE)
set(GSC_SDK_ASSEMBLY ${GSC_SDK_ASSEMBLY} PARENT_SCOPE)
