# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: headers, libraries, the CMake package and the pkg-config file. The tree it makes
# can be moved: the package and the pkg-config file find their prefix from where they lie.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gradscaler)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
set(targets gradscaler)
if(GRADSCALER_STATIC)
  list(APPEND targets gradscaler_static)
endif()
install(TARGETS ${targets} EXPORT gradscaler)
install(EXPORT gradscaler NAMESPACE gradscaler:: FILE gradscaler-targets.cmake DESTINATION ${package_dir})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/gradscaler-config.cmake.in
                              ${PROJECT_BINARY_DIR}/gradscaler-config.cmake INSTALL_DESTINATION ${package_dir})
# Functions are only ever appended within one ABI number, so any later release of the same major version will do.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gradscaler-config-version.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gradscaler-config.cmake ${PROJECT_BINARY_DIR}/gradscaler-config-version.cmake
        DESTINATION ${package_dir})

# Directories of the pkg-config file are relative to the prefix, and the prefix to the file; an absolute directory that
# somebody configured stays as it is.
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
configure_file(${PROJECT_SOURCE_DIR}/cmake/gradscaler.pc.in ${PROJECT_BINARY_DIR}/gradscaler.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/gradscaler.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
