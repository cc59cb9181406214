# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: headers, libraries, the CMake package and the pkg-config file. The tree it makes
# can be moved: the package and the pkg-config file find their prefix from where they lie.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gradscaler)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT dev FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
set(targets gradscaler)
if(GRADSCALER_STATIC)
  list(APPEND targets gradscaler_static)
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
install(FILES ${PROJECT_BINARY_DIR}/gradscaler.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# Debian packages: the library under the name that its soname has, and what a compiler needs. `cpack -G DEB`.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(GSC_GLIBC "" CACHE STRING "Oldest glibc that the Debian package names as its dependency")
  mark_as_advanced(GSC_GLIBC)
  set(CPACK_PACKAGE_NAME gradscaler)
  set(CPACK_PACKAGE_VENDOR "The gradscaler authors")
  set(CPACK_PACKAGE_CONTACT "The gradscaler authors <gradscaler@users.noreply.github.com>")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_COMPONENTS_ALL runtime dev)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libgradscaler${GSC_ABI_VERSION})
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_DEV_PACKAGE_NAME libgradscaler-dev)
  set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libgradscaler${GSC_ABI_VERSION} (= ${PROJECT_VERSION})")
  set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "${PROJECT_DESCRIPTION}: the shared library")
  set(CPACK_COMPONENT_DEV_DESCRIPTION "${PROJECT_DESCRIPTION}: headers, CMake package and pkg-config file")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE amd64)
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
  endif()
  if(GSC_GLIBC)
    set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6 (>= ${GSC_GLIBC})")
  else()
    set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
  endif()
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/triggers)
  file(WRITE ${PROJECT_BINARY_DIR}/triggers "activate-noawait ldconfig\n")
  include(CPack)
endif()
