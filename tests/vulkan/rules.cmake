# SPDX-License-Identifier: Apache-2.0
# Every translated function against the function in C++: rules_calls.py makes the calls of both.
set(rules_calls ${CMAKE_CURRENT_BINARY_DIR}/rules_calls.inc)
file(GLOB rules_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/core/vulkan/*.glsl ${PROJECT_SOURCE_DIR}/core/vulkan/*.h
     ${PROJECT_SOURCE_DIR}/core/vulkan/translate/*.py ${PROJECT_SOURCE_DIR}/core/rules/*.h
     ${PROJECT_SOURCE_DIR}/core/rules/optim/*.h)
add_custom_command(
  OUTPUT ${rules_calls}
  COMMAND ${GSC_VULKAN_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/rules_calls.py ${rules_calls} --clang ${GSC_CLANG}
          --glslang ${GSC_GLSLANG}
  DEPENDS rules_calls.py rules_entries.h ${PROJECT_SOURCE_DIR}/core/vulkan/generate.py ${rules_sources}
  COMMENT "Translating the rules for their test" VERBATIM)
add_executable(vulkan.rules rules_test.cpp device.cpp ${rules_calls})
target_include_directories(vulkan.rules PRIVATE ${CMAKE_CURRENT_BINARY_DIR})
target_compile_options(vulkan.rules PRIVATE -ffp-contract=off)
target_link_libraries(vulkan.rules PRIVATE vulkan_tests)
add_test(NAME vulkan.rules COMMAND vulkan.rules --gtest_brief=1)
set_tests_properties(vulkan.rules PROPERTIES LABELS vulkan TIMEOUT 600 COST 30 ENVIRONMENT GALLIVM_PERF=nopt
                     SKIP_REGULAR_EXPRESSION "there is no Vulkan device")
