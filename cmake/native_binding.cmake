# SPDX-License-Identifier: Apache-2.0
# The library of native methods of Java or C#: SWIG generates the methods, the library holds the whole of gradscaler and
# exports nothing but them. The caller's folder has generate.cmake, which runs SWIG.
find_program(GSC_SWIG NAMES swig swig4.0 swig4)

# Leaves the rest of the caller's file out, with one line, or stops if GRADSCALER_BINDINGS names the language.
macro(gsc_leave_out title why)
  if(NOT GRADSCALER_BINDINGS STREQUAL "all")
    message(FATAL_ERROR "${title}: ${why}")
  endif()
  message(STATUS "${title}: left out, ${why}")
  return()
endmacro()

# Stops if `file`, which has the version a second time, has another one.
function(gsc_require_version file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  file(READ ${file} text)
  string(TOLOWER "${text}" text)
  if(NOT text MATCHES "<version>${PROJECT_VERSION}</version>")
    message(FATAL_ERROR "${CMAKE_CURRENT_SOURCE_DIR}/${file}: the version is not ${PROJECT_VERSION}")
  endif()
endfunction()

# gsc_add_native_binding(<target> PROXY <one generated file> FOLDER <where the library goes> INTERFACES <files in
# bindings/swig> [INCLUDES <folders>]). Generated files go to <binary folder>/generated.
function(gsc_add_native_binding target)
  cmake_parse_arguments(arg "" "PROXY;FOLDER" "INTERFACES;INCLUDES" ${ARGN})
  set(swig_dir ${PROJECT_SOURCE_DIR}/bindings/swig)
  set(wrapper ${CMAKE_CURRENT_BINARY_DIR}/${target}.c)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
  list(TRANSFORM arg_INTERFACES PREPEND ${swig_dir}/)
  add_custom_command(
    OUTPUT ${wrapper} ${generated}/${arg_PROXY}
    COMMAND ${CMAKE_COMMAND} -DSWIG=${GSC_SWIG} -DINTERFACE=${swig_dir}/gradscaler.i
            "-DINCLUDES=${PROJECT_SOURCE_DIR}/include;${swig_dir}" -DOUTPUT=${generated} -DWRAPPER=${wrapper}
            -P ${CMAKE_CURRENT_SOURCE_DIR}/generate.cmake
    DEPENDS ${swig_dir}/gradscaler.i ${swig_dir}/objects.i ${arg_INTERFACES}
            ${PROJECT_SOURCE_DIR}/include/gradscaler/gradscaler.h ${PROJECT_SOURCE_DIR}/include/gradscaler/vulkan.h
            generate.cmake
    COMMENT "SWIG: ${target}" VERBATIM)
  # Generated code is not ours to keep free of warnings.
  set_source_files_properties(${wrapper} PROPERTIES COMPILE_OPTIONS -w
                                                    OBJECT_DEPENDS "${swig_dir}/support.h;${swig_dir}/barrier.h")
  # A bundle, which a MODULE is on macOS, is not what virtual machines load there.
  set(type MODULE)
  if(APPLE)
    set(type SHARED)
  endif()
  add_library(${target} ${type} ${wrapper})
  target_include_directories(${target} PRIVATE ${swig_dir} ${arg_INCLUDES})
  target_link_libraries(${target} PRIVATE gradscaler_static)
  set_target_properties(${target} PROPERTIES C_STANDARD 11 LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${arg_FOLDER})
  if(WIN32)
    # The name that virtual machines look for.
    set_target_properties(${target} PROPERTIES PREFIX "")
  endif()
  if(TARGET gradscaler_operators)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:gradscaler_operators>)
  endif()
  if(UNIX AND NOT APPLE)
    set(map ${PROJECT_SOURCE_DIR}/bindings/swig/exports.map)
    set_target_properties(${target} PROPERTIES LINK_DEPENDS ${map})
    target_link_options(${target} PRIVATE LINKER:--version-script=${map} ${GSC_EXCLUDE_LIBS} LINKER:-z,now
                        LINKER:--no-undefined)
  endif()
  if(GRADSCALER_STATIC_RUNTIME AND GSC_HAVE_STATIC_RUNTIME)
    target_link_options(${target} PRIVATE ${GSC_STATIC_RUNTIME_FLAGS})
  endif()
endfunction()
