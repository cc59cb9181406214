# SPDX-License-Identifier: Apache-2.0
# What `cargo publish` would upload builds by itself. Not by cargo's own verification: that takes gradscaler-sys from a
# folder in the user's home, where it stays as it was when a package of this version was first made. Arguments: CARGO,
# FOLDER (a workspace), TARGET (a folder to build in), VERSION.
set(ENV{CARGO_TARGET_DIR} ${TARGET})
execute_process(COMMAND ${CARGO} package --workspace --locked --allow-dirty --no-verify WORKING_DIRECTORY ${FOLDER}
                COMMAND_ERROR_IS_FATAL ANY)
set(unpacked ${TARGET}/unpacked)
file(REMOVE_RECURSE ${unpacked})
foreach(crate gradscaler-sys gradscaler)
  file(ARCHIVE_EXTRACT INPUT ${TARGET}/package/${crate}-${VERSION}.crate DESTINATION ${unpacked})
  foreach(file Cargo.toml README.md LICENSE src/lib.rs)
    if(NOT EXISTS ${unpacked}/${crate}-${VERSION}/${file})
      message(FATAL_ERROR "the package of ${crate} has no ${file}")
    endif()
  endforeach()
endforeach()
execute_process(COMMAND ${CARGO} check --features half --config
                        "patch.crates-io.gradscaler-sys.path='${unpacked}/gradscaler-sys-${VERSION}'"
                WORKING_DIRECTORY ${unpacked}/gradscaler-${VERSION} COMMAND_ERROR_IS_FATAL ANY)
