# SPDX-License-Identifier: Apache-2.0
# Rules of `cmake --install` for headers, libraries, the CMake package and the pkg-config file. The installed tree can be
# moved: the package and the pkg-config file find their prefix relative to themselves.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gradscaler)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT dev FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES ${GSC_LICENSES} DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
set(targets)
if(GRADSCALER_SHARED)
  list(APPEND targets gradscaler)
endif()
if(GRADSCALER_STATIC)
  list(APPEND targets gradscaler_static)
endif()
if(NOT targets)
  message(FATAL_ERROR "GRADSCALER_SHARED and GRADSCALER_STATIC are both OFF: there is no library to install")
endif()
install(TARGETS ${targets} EXPORT gradscaler RUNTIME COMPONENT runtime ARCHIVE COMPONENT dev
        LIBRARY COMPONENT runtime NAMELINK_COMPONENT dev)
install(EXPORT gradscaler NAMESPACE gradscaler:: FILE gradscaler-targets.cmake DESTINATION ${package_dir} COMPONENT dev)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gradscaler-config.cmake.in
                              ${PROJECT_BINARY_DIR}/gradscaler-config.cmake INSTALL_DESTINATION ${package_dir})
# Functions are only ever appended within one ABI number, so any later release of the same major version will do.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gradscaler-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gradscaler-config.cmake ${PROJECT_BINARY_DIR}/gradscaler-config-version.cmake
        DESTINATION ${package_dir} COMPONENT dev)

# Directories of the pkg-config file are relative to the prefix, and the prefix to the file; a configured absolute
# directory stays as it is.
foreach(dir INCLUDEDIR LIBDIR)
  if(IS_ABSOLUTE ${CMAKE_INSTALL_${dir}})
    set(pc_${dir} ${CMAKE_INSTALL_${dir}})
  else()
    set(pc_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" up "${up}")
  set(pc_prefix "\${pcfiledir}/${up}")
endif()
# What the static library needs; the only library that is installed is linked without --static.
set(pc_runtime stdc++)
if("c++" IN_LIST CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
  set(pc_runtime c++)
endif()
set(pc_private_cflags "-DGSC_STATIC")
set(pc_private_libs "-l${pc_runtime} -lm -pthread${GSC_CUDA_PC_LIBS}${GSC_VULKAN_PC_LIBS}")
set(pc_cflags)
set(pc_libs)
if(NOT GRADSCALER_SHARED)
  set(pc_cflags " ${pc_private_cflags}")
  set(pc_libs " ${pc_private_libs}")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/gradscaler.pc.in ${PROJECT_BINARY_DIR}/gradscaler.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/gradscaler.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

if(PROJECT_IS_TOP_LEVEL AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
  include(cmake/debian.cmake)
endif()
