# SPDX-License-Identifier: Apache-2.0
# Makes the NuGet package: a zip of the assemblies, their XML documentation and the native library where .NET and Mono
# look for them. Arguments: NUSPEC (template), VERSION, ASSEMBLY (for Mono), NETSTANDARD (the same for .NET; may be
# empty), NET8 (by an SDK of .NET; may be empty), DOCUMENTATION, NATIVE, RID, LICENSE, FOLDER (to lay it out in), OUTPUT.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER}/_rels)
# Not in lib: a .NET Framework would take it, which lacks what Mono has in mscorlib.
file(COPY ${ASSEMBLY} ${DOCUMENTATION} DESTINATION ${FOLDER}/mono)
if(NETSTANDARD)
  file(COPY ${NETSTANDARD} ${DOCUMENTATION} DESTINATION ${FOLDER}/lib/netstandard2.0)
  string(APPEND groups "<group targetFramework=\".NETStandard2.0\">
        <dependency id=\"System.Memory\" version=\"4.5.5\" />
      </group>")
endif()
if(NET8)
  file(COPY ${NET8} ${DOCUMENTATION} DESTINATION ${FOLDER}/lib/net8.0)
  string(APPEND groups "<group targetFramework=\"net8.0\" />")
endif()
configure_file(${NUSPEC} ${FOLDER}/Gradscaler.nuspec @ONLY)
file(COPY ${NATIVE} DESTINATION ${FOLDER}/runtimes/${RID}/native)
file(COPY ${LICENSE} DESTINATION ${FOLDER})
# What the Open Packaging Conventions ask for: the type of every file, and which of them describes the package.
set(xml "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n")
set(types "http://schemas.openxmlformats.org/package/2006/content-types")
file(WRITE "${FOLDER}/[Content_Types].xml" "${xml}<Types xmlns=\"${types}\">
  <Default Extension=\"rels\" ContentType=\"application/vnd.openxmlformats-package.relationships+xml\" />
  <Default Extension=\"nuspec\" ContentType=\"application/octet\" />
  <Default Extension=\"dll\" ContentType=\"application/octet\" />
  <Default Extension=\"xml\" ContentType=\"application/octet\" />
  <Default Extension=\"so\" ContentType=\"application/octet\" />
  <Default Extension=\"dylib\" ContentType=\"application/octet\" />
  <Override PartName=\"/LICENSE\" ContentType=\"application/octet\" />
</Types>
")
set(relationships "http://schemas.openxmlformats.org/package/2006/relationships")
set(manifest "http://schemas.microsoft.com/packaging/2010/07/manifest")
file(WRITE ${FOLDER}/_rels/.rels "${xml}<Relationships xmlns=\"${relationships}\">
  <Relationship Type=\"${manifest}\" Target=\"/Gradscaler.nuspec\" Id=\"manifest\" />
</Relationships>
")
file(GLOB files RELATIVE ${FOLDER} ${FOLDER}/*)
list(APPEND files _rels)
list(REMOVE_DUPLICATES files)
file(REMOVE ${OUTPUT})
execute_process(COMMAND ${CMAKE_COMMAND} -E tar cf ${OUTPUT} --format=zip -- ${files} WORKING_DIRECTORY ${FOLDER}
                COMMAND_ERROR_IS_FATAL ANY)
