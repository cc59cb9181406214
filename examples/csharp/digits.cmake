# SPDX-License-Identifier: Apache-2.0
# Steps of run_outside.cmake: the digits example in C# on the packed nupkg. Arguments: MCS, RID, MONO, or DOTNET (the
# host of a .NET runtime) and RETARGET (what makes an assembly of mcs fit for it); STATE: the formats of state and
# masters, or nothing. An SDK would copy the package's files next to the program; this does so without one.
separate_arguments(STATE)
file(GLOB sources ${folder}/*.cs)
file(GLOB package ${folder}/*.nupkg)
file(ARCHIVE_EXTRACT INPUT ${package} DESTINATION ${folder}/package)
file(COPY ${folder}/package/runtimes/${RID}/native/libgradscaler_csharp.so ${folder}/package/mono/Gradscaler.dll
     DESTINATION ${folder})
run(${MCS} -optimize+ -warn:4 -warnaserror -out:Digits.exe -r:Gradscaler.dll ${sources})
if(DOTNET)
  # Not file(COPY), which takes files of the same time for the same.
  file(COPY_FILE ${folder}/package/lib/netstandard2.0/Gradscaler.dll ${folder}/Gradscaler.dll)
  file(RENAME ${folder}/Digits.exe ${folder}/compiled.exe)
  run(${MONO} ${RETARGET} compiled.exe Digits.exe)
  file(WRITE ${folder}/Digits.runtimeconfig.json
       "{\"runtimeOptions\": {\"framework\": {\"name\": \"Microsoft.NETCore.App\", \"version\": \"8.0.0\"},
        \"rollForward\": \"Major\"}}")
  run(${DOTNET} exec Digits.exe digits.csv ${STATE})
else()
  run(${MONO} Digits.exe digits.csv ${STATE})
endif()
