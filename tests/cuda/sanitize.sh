# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The part of scripts/gpu that runs the GPU tests under the tools of compute-sanitizer. Sourced by it.
# shellcheck disable=SC2154 # variables of scripts/gpu

# compute-sanitizer in PATH or next to the nvcc that CMake found.
find_sanitizer() {
  local nvcc
  command -v compute-sanitizer && return
  nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt" 2>/dev/null)
  [ -n "$nvcc" ] && command -v "${nvcc%/*}/compute-sanitizer"
}

# The four tools in parallel: they mostly wait for the host. The huge tensor, 10^8 random elements and thousands of
# tensors would take minutes under them. A tool that inspects memory invalidates a capture.
sanitize() { # <seconds to keep>
  local tool start=$SECONDS limit sanitizer status i
  local tools=(memcheck racecheck initcheck synccheck) pids=()
  local sanitized='*:-Gpu.MoreThan*:Gpu.TheCurrentDevice*:*ScaleCast*:*offset_3:*EveryMisalignment:*RandomBits*:*Shapes*'
  if ! sanitizer=$(find_sanitizer); then
    report compute-sanitizer 0 "left out: not found"
    return
  fi
  limit=$(smaller "$(left "$1")" 240)
  if [ "$limit" -le 0 ]; then
    report compute-sanitizer 0 "left out: no time"
    return
  fi
  run_tool() { # <tool> <seconds>
    timeout "$2" "$sanitizer" --tool "$1" --error-exitcode 1 --print-limit 20 "$programs_at/cuda.gpu" \
      --gtest_brief=1 "--gtest_filter=$sanitized" >"$logs/$1.log" 2>&1
  }
  for tool in "${tools[@]}"; do
    run_tool "$tool" "$limit" &
    pids+=($!)
  done
  for i in "${!tools[@]}"; do
    tool=${tools[i]}
    wait "${pids[i]}"
    status=$?
    # An error of the tool itself, seen once in a few runs, is counted by it like one that it has found.
    if [ $status != 0 ] && grep -q 'Internal Sanitizer Error' "$logs/$tool.log" && [ "$(left "$1")" -gt 0 ]; then
      keep_log "$tool"
      run_tool "$tool" "$(left "$1")"
      status=$?
    fi
    keep_log "$tool"
    if [ $status = 0 ]; then
      report "$tool" $((SECONDS - start)) ok
    elif grep -q 'Device not supported' "$logs/$tool.log"; then
      report "$tool" $((SECONDS - start)) "left out: does not support this device"
    elif [ $status = 124 ] && ! grep -q '========= [A-Z].*error' "$logs/$tool.log"; then
      report "$tool" $((SECONDS - start)) "left out: not done after $limit seconds, no error until then"
    else
      tail -n 30 "$logs/$tool.log"
      report "$tool" $((SECONDS - start)) FAILED
    fi
  done
}
