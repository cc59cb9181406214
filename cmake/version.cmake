# SPDX-License-Identifier: Apache-2.0
# Reads the product version and the ABI number from the public header, the one place where they are written.
# Sets GSC_VERSION ("0.1.0") and GSC_ABI_VERSION ("1").
set(header ${CMAKE_CURRENT_LIST_DIR}/../include/gradscaler/gradscaler.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
foreach(part VERSION_MAJOR VERSION_MINOR VERSION_PATCH ABI_VERSION)
  file(STRINGS ${header} line REGEX "^#define GSC_${part} ")
  if(NOT line MATCHES "^#define GSC_${part} ([0-9]+)u?$")
    message(FATAL_ERROR "${header}: no line '#define GSC_${part} <number>'")
  endif()
  set(GSC_${part} ${CMAKE_MATCH_1})
endforeach()
set(GSC_VERSION ${GSC_VERSION_MAJOR}.${GSC_VERSION_MINOR}.${GSC_VERSION_PATCH})
# Copies of the version. An archive of the sources may lack some.
foreach(copy CITATION.cff packaging/conda/recipe.yaml packaging/vcpkg/gradscaler/vcpkg.json)
  set(file ${CMAKE_CURRENT_LIST_DIR}/../${copy})
  if(EXISTS ${file})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(STRINGS ${file} line REGEX "^ *\"?version\"?: \"?${GSC_VERSION}\"?,?$")
    if(NOT line)
      message(FATAL_ERROR "${file}: the version is not ${GSC_VERSION}")
    endif()
  endif()
endforeach()
