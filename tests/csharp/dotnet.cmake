# SPDX-License-Identifier: Apache-2.0
# One ctest for each fixture, and those of whole processes. Mono's compiler makes them against NUnit 2.6; Runner.cs runs
# them on .NET, where NUnit's own runner does not work. The assertions are the constraint style that newer versions have
# too.
file(GLOB nunit /usr/lib/cli/nunit.framework-2.6*/nunit.framework.dll)
set(missing)
if(NOT nunit)
  set(missing "NUnit 2.6 was not found")
elseif(NOT GSC_CSHARP_RETARGET)
  set(missing "Mono.Cecil was not found")
elseif(NOT GSC_DOTNET)
  set(missing "no runtime of .NET 8 was found ('scripts/setup csharp' installs one)")
endif()
if(missing)
  message(STATUS "C# tests: left out on .NET, ${missing}")
  return()
endif()
list(GET nunit 0 nunit)
set(folder ${CMAKE_CURRENT_BINARY_DIR}/run)
set(compiled ${CMAKE_CURRENT_BINARY_DIR}/compiled)
file(MAKE_DIRECTORY ${compiled})
set(compile ${GSC_MCS} -optimize+ -warnaserror -warn:4 -r:${GSC_CSHARP_ASSEMBLY} -r:${nunit})
# The tests' own code is optimised from the first call: else its locals keep objects alive that nothing uses any more.
set(framework [["framework": {"name": "Microsoft.NETCore.App", "version": "8.0.0"}, "rollForward": "Major"]])
set(optimised [["configProperties": {"System.Runtime.TieredCompilation": false}]])
file(CONFIGURE OUTPUT ${folder}/Programs.runtimeconfig.json CONTENT "{\"runtimeOptions\": {${framework}}}\n")
file(CONFIGURE OUTPUT ${folder}/Runner.runtimeconfig.json
     CONTENT "{\"runtimeOptions\": {${framework}, ${optimised}}}\n")

file(GLOB sources CONFIGURE_DEPENDS *.cs)
list(FILTER sources EXCLUDE REGEX "/(Programs|Runner|RunnersFixtures|Stubs)\\.cs$")
set(tests ${folder}/GradscalerTests.dll)
set(programs ${folder}/Programs.exe)
set(runner ${folder}/Runner.exe)
set(runners_fixtures ${folder}/RunnersFixtures.dll)
add_custom_command(
  OUTPUT ${tests} ${programs}
  COMMAND ${CMAKE_COMMAND} -E copy ${GSC_CSHARP_ASSEMBLY} ${nunit} ${compiled}
  COMMAND ${CMAKE_COMMAND} -E copy ${GSC_CSHARP_NETSTANDARD} ${GSC_CSHARP_NATIVE} ${nunit} ${folder}
  COMMAND ${compile} -target:library -out:${compiled}/GradscalerTests.dll ${sources}
  COMMAND ${compile} -out:${compiled}/Programs.exe Programs.cs World.cs DisposeTests.cs
  COMMAND ${GSC_MONO} ${GSC_CSHARP_RETARGET} ${compiled}/GradscalerTests.dll ${tests}
  COMMAND ${GSC_MONO} ${GSC_CSHARP_RETARGET} ${compiled}/Programs.exe ${programs}
  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
  DEPENDS ${sources} Programs.cs ${GSC_CSHARP_TARGET} ${GSC_CSHARP_ASSEMBLY} COMMENT "C# tests" VERBATIM)
add_custom_command(
  OUTPUT ${runner} ${runners_fixtures}
  COMMAND ${GSC_MCS} -warnaserror -warn:4 -r:${nunit} -out:${runner} Runner.cs
  COMMAND ${GSC_MCS} -warnaserror -warn:4 -r:${nunit} -target:library -out:${runners_fixtures} RunnersFixtures.cs
  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} DEPENDS Runner.cs RunnersFixtures.cs COMMENT "C# runner" VERBATIM)
add_custom_target(csharp_tests ALL DEPENDS ${tests} ${programs} ${runner} ${runners_fixtures})

# gsc_csharp_test(<name> <arguments of dotnet exec...>)
set(environment DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1)
function(gsc_csharp_test name)
  add_test(NAME csharp.${name} COMMAND ${GSC_DOTNET} exec ${ARGN})
  set_tests_properties(csharp.${name} PROPERTIES LABELS csharp TIMEOUT 300 ENVIRONMENT "${environment}")
endfunction()
foreach(file ${sources})
  if(file MATCHES "/([A-Za-z]+Tests)\\.cs$")
    gsc_csharp_test(${CMAKE_MATCH_1} ${runner} ${tests} ${CMAKE_MATCH_1})
    # Garbage is collected after every 64 KiB, except where that is what is tested.
    if(NOT CMAKE_MATCH_1 STREQUAL "ForgottenObjectsTests")
      set_property(TEST csharp.${CMAKE_MATCH_1} APPEND PROPERTY ENVIRONMENT DOTNET_GCgen0size=10000)
    endif()
  endif()
endforeach()
set_tests_properties(csharp.ForgottenObjectsTests PROPERTIES LABELS "csharp;long")
# Threads that race: these take 20 times as long where others have the processors.
set_tests_properties(csharp.DisposeTests csharp.UsesTests PROPERTIES LABELS "csharp;repeats;long" PROCESSORS 2 TIMEOUT 900)
gsc_csharp_test(exit ${programs} exit)

# What the runner prints, and that it fails.
gsc_csharp_test(runner_reports ${runner} ${runners_fixtures})
gsc_csharp_test(runner_fails ${runner} ${runners_fixtures} Failing)
gsc_csharp_test(runner_needs_tests ${runner} ${runners_fixtures} Missing)
set(reports "not know this SetUpAttribute of Before\n.*TestCaseAttribute of Takes\n.*IgnoreAttribute of Ignored\n"
            "Unknown: the test Hidden is not .*\nFailing.OneIsTwo: .*one\n *Expected: 2\n *But was: *1\n.*"
            "\nFailing.Throws: System.InvalidOperationException: thrown\n.*\n5 tests run, 6 failed\n")
string(JOIN "" reports ${reports})
set_tests_properties(csharp.runner_reports PROPERTIES PASS_REGULAR_EXPRESSION "${reports}")
set_tests_properties(csharp.runner_fails csharp.runner_needs_tests PROPERTIES WILL_FAIL ON)

# What a call costs more than in C.
set(compare ${PROJECT_SOURCE_DIR}/tests/java)
add_executable(csharp_overhead_reference ${compare}/overhead.cpp)
target_link_libraries(csharp_overhead_reference PRIVATE gradscaler::gradscaler)
add_test(NAME csharp.overhead
         COMMAND ${CMAKE_COMMAND} -DREFERENCE=$<TARGET_FILE:csharp_overhead_reference> -DLANGUAGE=C\#
                 "-DPROGRAM=${GSC_DOTNET};exec;${programs};overhead" -P ${compare}/compare_overhead.cmake)
set_tests_properties(csharp.overhead PROPERTIES LABELS "csharp;long" TIMEOUT 120 RUN_SERIAL ON ENVIRONMENT "${environment}")
