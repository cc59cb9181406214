# SPDX-License-Identifier: Apache-2.0
# The one name of a system and a processor in Java, such as linux-x86_64: the folder in a jar of natives and its
# classifier. Platform.java gives the JVM's os.name and os.arch the same name; tests/java/platforms.txt holds both to it.
function(gsc_java_platform system processor variable)
  string(TOLOWER "${system}" system)
  string(TOLOWER "${processor}" processor)
  if(system STREQUAL "darwin")
    set(system macos)
  endif()
  if(processor MATCHES "^(amd64|x64)$")
    set(processor x86_64)
  elseif(processor STREQUAL "arm64")
    set(processor aarch64)
  elseif(processor MATCHES "^i[3-6]86$")
    set(processor x86)
  endif()
  set(${variable} ${system}-${processor} PARENT_SCOPE)
endfunction()
