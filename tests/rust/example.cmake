# SPDX-License-Identifier: Apache-2.0
# Builds and runs a program of examples/rust on a copy, where cargo may write its lock. Left out with one line where the
# crates are neither here nor in reach. Arguments: CARGO, SOURCE (of the tree), TARGET (a folder to build in), NAME (of
# the program), CRATE (that it needs).
set(ENV{CARGO_TARGET_DIR} ${TARGET})
set(ENV{CARGO_NET_RETRY} 1)
set(copy ${TARGET}/package)
file(COPY ${SOURCE}/examples/rust/candle.rs ${SOURCE}/examples/rust/vulkan.rs DESTINATION ${copy})
file(READ ${SOURCE}/examples/rust/Cargo.toml manifest)
string(REPLACE "../../bindings" "${SOURCE}/bindings" manifest "${manifest}")
file(WRITE ${copy}/Cargo.toml "${manifest}")
foreach(way --offline "")
  execute_process(COMMAND ${CARGO} fetch ${way} WORKING_DIRECTORY ${copy} RESULT_VARIABLE missing OUTPUT_QUIET
                  ERROR_VARIABLE why)
  if(NOT missing)
    break()
  endif()
endforeach()
if(missing)
  message("rust.${NAME}: left out: the crates of the examples are not here: ${why}")
  return()
endif()
execute_process(COMMAND ${CARGO} run --release --offline --features ${CRATE} --bin ${NAME}
                WORKING_DIRECTORY ${copy} COMMAND_ERROR_IS_FATAL ANY)
