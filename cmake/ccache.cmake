# SPDX-License-Identifier: Apache-2.0
# Compiles through ccache where it is installed, unless a launcher is named. Paths of the source tree count as relative,
# so that a build in another folder, such as that of a fresh clone, finds what this one compiled.
if(GSC_CCACHE AND NOT EXISTS ${GSC_CCACHE})
  unset(GSC_CCACHE CACHE)  # it is gone
endif()
find_program(GSC_CCACHE ccache)
mark_as_advanced(GSC_CCACHE)
if(PROJECT_IS_TOP_LEVEL AND GSC_CCACHE)
  foreach(language C CXX CUDA)
    if(NOT CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
          CCACHE_NOHASHDIR=true ${GSC_CCACHE})
    endif()
  endforeach()
  message(STATUS "Compilation: through ${GSC_CCACHE}")
endif()
