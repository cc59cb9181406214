# SPDX-License-Identifier: Apache-2.0
# The interpreter of the Python package and of tests that need NumPy, if none is named: that of an environment which
# scripts/setup made, with PyTorch and JAX or with NumPy and pytest alone; else CMake looks for one.
if(PROJECT_IS_TOP_LEVEL AND NOT SKBUILD AND NOT CMAKE_CROSSCOMPILING)
  foreach(environment python frameworks)
    set(folder ${PROJECT_SOURCE_DIR}/build/${environment})
    foreach(prefix Python Python3)
      if(EXISTS ${folder}/complete AND NOT DEFINED CACHE{${prefix}_EXECUTABLE})
        set(${prefix}_EXECUTABLE ${folder}/bin/python)
      endif()
    endforeach()
  endforeach()
endif()
