# SPDX-License-Identifier: Apache-2.0
# cuda.ptx.<target>: the tests of cuda.emulated with the kernels that nvcc makes for compute_<target>, translated to C++
# and executed thread by thread (machine.h). Included by tests/cuda, whose sources and libraries it shares.
# `scripts/ptx all` runs five targets, also under weak memory.
set(GRADSCALER_PTX_TARGETS "" CACHE STRING "Compute capabilities whose PTX the tests execute (scripts/ptx sets them)")
if(NOT GRADSCALER_PTX_TARGETS)
  return()
endif()
find_program(GSC_TEST_PYTHON NAMES python3)
if(NOT GSC_TEST_PYTHON OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  message(STATUS "execution of PTX: left out, needs python3 and an x86-64 processor")
  return()
endif()

gsc_add_emulated(gradscaler_ptx STATIC ${cuda_sources} ${host_objects} ptx/machine.cpp ptx/memory.cpp ptx/symbols.cpp)
target_compile_definitions(gradscaler_ptx PRIVATE GSC_CUDA_PTX)
add_library(ptx_tests OBJECT EXCLUDE_FROM_ALL ${emulated_tests})
target_include_directories(ptx_tests PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(ptx_tests PRIVATE emulation GTest::gtest)

foreach(target ${GRADSCALER_PTX_TARGETS})
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/ptx/${target})
  file(MAKE_DIRECTORY ${folder})
  set(files)
  foreach(source ${cuda_sources})
    cmake_path(GET source STEM stem)
    add_custom_command(
      OUTPUT ${folder}/${stem}.ptx
      COMMAND ${CMAKE_CUDA_COMPILER} -ccbin ${CMAKE_CUDA_HOST_COMPILER} -std=c++20 -O3 --fmad=false -lineinfo
              -arch=compute_${target} -I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/include -DGSC_BUILDING -ptx
              -MD -MF ${folder}/${stem}.d ${source} -o ${folder}/${stem}.ptx
      DEPENDS ${source} DEPFILE ${folder}/${stem}.d VERBATIM)
    list(APPEND files ${folder}/${stem}.ptx)
  endforeach()
  add_custom_command(
    OUTPUT ${folder}/kernels.cpp
    COMMAND ${GSC_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/ptx/translate.py ${folder}/kernels.cpp ${files}
    DEPENDS ptx/translate.py ${files} VERBATIM)
  add_executable(cuda.ptx.${target} ${folder}/kernels.cpp $<TARGET_OBJECTS:ptx_tests>)
  target_include_directories(cuda.ptx.${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/ptx)
  target_link_libraries(cuda.ptx.${target} PRIVATE gradscaler_ptx GTest::gtest_main Threads::Threads)
  # Much code, executed little.
  set_source_files_properties(${folder}/kernels.cpp PROPERTIES COMPILE_OPTIONS "-O1;-fno-strict-aliasing;-w")
  add_test(NAME cuda.ptx.${target} COMMAND cuda.ptx.${target} --gtest_brief=1)
  set_tests_properties(cuda.ptx.${target} PROPERTIES LABELS cuda TIMEOUT 900 COST 20)
  if(target EQUAL 75)
    add_test(NAME cuda.ptx.${target}.132 COMMAND cuda.ptx.${target} --gtest_brief=1 --gtest_filter=Ticket*)
    set_tests_properties(cuda.ptx.${target}.132 PROPERTIES LABELS cuda TIMEOUT 900
                         ENVIRONMENT EMULATED_MULTIPROCESSORS=132)
    # Shows that the PTX tests can fail.
    add_test(NAME cuda.ptx.mutants COMMAND ${GSC_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/ptx/mutate.py --quick
                                           $<TARGET_FILE:cuda.ptx.${target}>)
    set_tests_properties(cuda.ptx.mutants PROPERTIES LABELS cuda)
  endif()
endforeach()
