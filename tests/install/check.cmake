# SPDX-License-Identifier: Apache-2.0
# One step of the installation tests; run with cmake -P. STEP is one of: install, move, or a way to use the installed
# TREE from outside. WORK is this step's own folder. A step that fails stops with the command's output.
cmake_minimum_required(VERSION 3.25)
set(lib ${TREE}/${LIBDIR})
set(source ${CMAKE_CURRENT_LIST_DIR}/outside)
separate_arguments(flags UNIX_COMMAND "${FLAGS}")
# Where the consumer's toolkit lies, if the library has the CUDA backend.
cmake_path(GET CUDART PARENT_PATH cuda_folder)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(require_files)
  foreach(file ${ARGV})
    if(NOT EXISTS ${TREE}/${file})
      message(FATAL_ERROR "not installed: ${file}")
    endif()
  endforeach()
endfunction()

# The files that tell others where the tree lies must not know where it was made.
function(require_relocatable)
  file(GLOB files ${lib}/cmake/gradscaler/*.cmake ${lib}/pkgconfig/*.pc)
  foreach(file ${files})
    file(READ ${file} text)
    foreach(path ${ORIGINAL} ${BUILD} ${cuda_folder})
      string(FIND "${text}" "${path}" at)
      if(NOT at EQUAL -1)
        message(FATAL_ERROR "${file} contains the path ${path}")
      endif()
    endforeach()
  endforeach()
endfunction()

# pkg_config(<variable> <arguments...>): its answer as a list. Only the tree's own file can be found.
function(pkg_config variable)
  set(ENV{PKG_CONFIG_LIBDIR} ${lib}/pkgconfig)
  set(ENV{PKG_CONFIG_PATH})
  execute_process(COMMAND ${PKG_CONFIG} ${ARGN} gradscaler OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(answer UNIX_COMMAND "${answer}")
  set(${variable} "${answer}" PARENT_SCOPE)
endfunction()

# run_find_package(<target> <options...>)
function(run_find_package variant)
  run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${source} -B ${WORK} -DCMAKE_C_COMPILER=${CC} -DCMAKE_C_FLAGS=${FLAGS}
      -DCMAKE_PREFIX_PATH=${TREE} -DVARIANT=${variant} ${ARGN})
  run(${CMAKE_COMMAND} --build ${WORK})
  run(${WORK}/outside)
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
# The program must find the library it was linked to by what the build told it, not by the environment.
unset(ENV{LD_LIBRARY_PATH})
unset(ENV{GRADSCALER_LIBRARY})

if(STEP STREQUAL "install")
  cmake_path(GET TREE PARENT_PATH parent)
  file(REMOVE_RECURSE ${TREE} ${parent}/elsewhere)
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${TREE})
  file(GLOB_RECURSE headers RELATIVE ${CMAKE_CURRENT_LIST_DIR}/../../include
       ${CMAKE_CURRENT_LIST_DIR}/../../include/gradscaler/*)
  list(TRANSFORM headers PREPEND ${INCLUDEDIR}/)
  require_files(${headers} ${LIBDIR}/libgradscaler.so ${LIBDIR}/libgradscaler.so.${ABI}
                ${LIBDIR}/libgradscaler.so.${VERSION} ${LIBDIR}/pkgconfig/gradscaler.pc)
  require_relocatable()
elseif(STEP STREQUAL "move")
  cmake_path(GET TREE PARENT_PATH parent)
  file(REMOVE_RECURSE ${TREE})
  file(MAKE_DIRECTORY ${parent})
  file(RENAME ${ORIGINAL} ${TREE})
elseif(STEP STREQUAL "find_package")
  run_find_package(gradscaler)
elseif(STEP STREQUAL "find_package_static")
  run_find_package(gradscaler_static -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${FLAGS}
                   -DCMAKE_LIBRARY_PATH=${cuda_folder})
elseif(STEP STREQUAL "pkg_config")
  pkg_config(version --modversion)
  if(NOT version STREQUAL VERSION)
    message(FATAL_ERROR "pkg-config says version ${version}, not ${VERSION}")
  endif()
  pkg_config(options --cflags --libs)
  run(${CC} ${flags} ${source}/outside.c -o ${WORK}/outside ${options} -Wl,-rpath,${lib})
  run(${WORK}/outside)
elseif(STEP STREQUAL "pkg_config_static")
  pkg_config(cflags --static --cflags)
  pkg_config(libs --static --libs)
  # Both variants lie side by side under one name; -l:file picks the archive.
  list(TRANSFORM libs REPLACE "^-lgradscaler$" "-l:libgradscaler.a")
  if(cuda_folder)
    list(APPEND libs -L${cuda_folder})
  endif()
  run(${CC} ${flags} ${source}/outside.c -o ${WORK}/outside ${cflags} ${libs})
  run(${WORK}/outside)
elseif(STEP STREQUAL "dlopen")
  run(${CC} ${flags} -DUSE_DLOPEN -I${TREE}/${INCLUDEDIR} ${source}/outside.c -o ${WORK}/outside -ldl)
  run(${WORK}/outside ${lib}/libgradscaler.so.${ABI})
else()
  message(FATAL_ERROR "no such step: ${STEP}")
endif()
