# SPDX-License-Identifier: Apache-2.0
# Builds the library that the triplet asks for, shared or static.
cmake_path(SET SOURCE_PATH NORMALIZE "${CURRENT_PORT_DIR}/../../..")
string(COMPARE EQUAL "${VCPKG_LIBRARY_LINKAGE}" "static" static)
string(COMPARE EQUAL "${VCPKG_LIBRARY_LINKAGE}" "dynamic" shared)
set(off)
foreach(part CUDA VULKAN BUILD_TESTS BUILD_EXAMPLES BUILD_BENCHMARKS)
  list(APPEND off -DGRADSCALER_${part}=OFF)
endforeach()
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
                      OPTIONS ${off} -DGRADSCALER_SHARED=${shared} -DGRADSCALER_STATIC=${static})
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/gradscaler)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share"
     "${CURRENT_PACKAGES_DIR}/share/doc")
set(target gradscaler)
if(static)
  set(target gradscaler_static)
endif()
configure_file("${CURRENT_PORT_DIR}/usage.in" "${CURRENT_PACKAGES_DIR}/share/${PORT}/usage" @ONLY)
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
