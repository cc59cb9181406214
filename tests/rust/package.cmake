# SPDX-License-Identifier: Apache-2.0
# Packs the crates, from a copy in TARGET/publish that has the license, as `cargo publish` uploads them, and builds what was
# packed. Not by cargo's own verification: that takes
# gradscaler-sys from a folder in the user's home, where it stays as it was when a package of this version was first made.
# Arguments: CARGO, SOURCE (the repository), TARGET (a folder to build in), VERSION.
set(ENV{CARGO_TARGET_DIR} ${TARGET})
set(publish ${TARGET}/publish)
set(unpacked ${TARGET}/unpacked)
file(REMOVE_RECURSE ${publish} ${unpacked})
file(COPY ${SOURCE}/bindings/rust/ DESTINATION ${publish})
foreach(crate gradscaler-sys gradscaler)
  file(COPY ${SOURCE}/LICENSE DESTINATION ${publish}/${crate})
endforeach()
execute_process(COMMAND ${CARGO} package --workspace --locked --allow-dirty --no-verify WORKING_DIRECTORY ${publish}
                COMMAND_ERROR_IS_FATAL ANY)
foreach(crate gradscaler-sys gradscaler)
  file(ARCHIVE_EXTRACT INPUT ${TARGET}/package/${crate}-${VERSION}.crate DESTINATION ${unpacked})
  foreach(file Cargo.toml README.md LICENSE src/lib.rs)
    if(NOT EXISTS ${unpacked}/${crate}-${VERSION}/${file})
      message(FATAL_ERROR "the package of ${crate} has no ${file}")
    endif()
  endforeach()
endforeach()
# With a new target folder. Unpacked files have old dates, so cargo would keep what it built of the same version before.
execute_process(COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${unpacked}/target
                        ${CARGO} check --features half --config
                        "patch.crates-io.gradscaler-sys.path='${unpacked}/gradscaler-sys-${VERSION}'"
                WORKING_DIRECTORY ${unpacked}/gradscaler-${VERSION} COMMAND_ERROR_IS_FATAL ANY)
