# SPDX-License-Identifier: Apache-2.0
# The kernels: translated, compiled to SPIR-V and added to gradscaler_vulkan as one C++ file. Where spirv-val is, it
# checks them.
find_program(GSC_SPIRV_VAL NAMES spirv-val)
mark_as_advanced(GSC_SPIRV_VAL)
set(validator)
if(GSC_SPIRV_VAL)
  set(validator --validator ${GSC_SPIRV_VAL})
endif()
file(GLOB shader_sources CONFIGURE_DEPENDS *.comp *.glsl *.h translate/*.py ${PROJECT_SOURCE_DIR}/core/rules/*.h
     ${PROJECT_SOURCE_DIR}/core/rules/optim/*.h)
set(shaders ${CMAKE_CURRENT_BINARY_DIR}/shaders.cpp)
add_custom_command(
  OUTPUT ${shaders}
  COMMAND ${GSC_VULKAN_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/generate.py ${shaders} --clang ${GSC_CLANG}
          --glslang ${GSC_GLSLANG} ${validator}
  DEPENDS generate.py ${shader_sources} ${PROJECT_SOURCE_DIR}/include/gradscaler/gradscaler.h
  COMMENT "Translating and compiling the Vulkan kernels" VERBATIM)
target_sources(gradscaler_vulkan PRIVATE ${shaders})
