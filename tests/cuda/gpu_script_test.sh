#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A dry run of scripts/gpu with stand-ins: nvidia-smi and compute-sanitizer are scripts, the programs run the emulated
# device. Shows that the script runs what it should, reports what it left out, and keeps the results of a stopped run;
# it shows nothing about a GPU. Usage: gpu_script_test.sh <source folder> <cuda.emulated> <emulated bench> <shapes.txt>
set -euo pipefail
source=$1 tests=$2 bench=$3 shapes=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" "$folder/programs" "$folder/python"
# PyTorch may be here, and see a GPU that is none of this test's.
echo 'raise ImportError' >"$folder/python/torch.py"

fail() {
  echo "gpu_script_test: $*"
  cat "$folder/output" "$folder/out/"{summary.txt,logs.txt} 2>/dev/null
  exit 1
}
program() { # <file>: the script on standard input
  { echo '#!/usr/bin/env bash'; cat; } >"$folder/$1"
  chmod +x "$folder/$1"
}
run_gpu() { # <expected status> <part>
  local status=0
  PATH=$folder/bin:$PATH PYTHONPATH=$folder/python GPU_PROGRAMS=$folder/programs \
    "$source/scripts/gpu" "$2" "$folder/out" >"$folder/output" 2>&1 || status=$?
  [ $status = "$1" ] || fail "scripts/gpu $2 ended with $status, not $1"
}
says() { grep -qE "$2" "$folder/out/$1" || fail "$1 does not say '$2'"; }

program bin/nvidia-smi <<'end'
case $* in
  *name,*) echo "Stand-in, 0, 9.0, 0 MiB" ;;
  *) echo 9.0 ;;
esac
end
# One tool is stopped by timeout, one does not know the device, one finds something if it is to.
program bin/compute-sanitizer <<'end'
case $2 in
  racecheck) exit 124 ;;
  memcheck)
    [ -z "${STAND_IN_TROUBLE:-}" ] || [ -e "$STAND_IN_TROUBLE" ] || {
      touch "$STAND_IN_TROUBLE"
      echo "========= Internal Sanitizer Error: Detected a failure"
      exit 1
    }
    ;;
  initcheck) echo "Device not supported"; exit 1 ;;
  synccheck) [ -z "${STAND_IN_ERROR:-}" ] || { echo "========= Barrier error detected"; exit 1; } ;;
esac
end
program programs/cuda.gpu <<<"exec '$tests' --gtest_brief=1 --gtest_filter='Grid.*'"
# shellcheck disable=SC2016 # expands when it runs
program programs/cuda.dlclose <<<'[ -n "$1" ]'
# shellcheck disable=SC2016
program programs/digits_cuda <<<'[ "${1##*/}" = digits.csv ]'
program programs/gradscaler_gpu_bench <<<"exec '$bench' --small \"\$@\""
cp "$shapes" "$folder/programs/shapes.txt"

run_gpu 0 all
says summary.txt 'gpu_tests .*ok$'
says summary.txt 'dlclose .*ok$'
says summary.txt 'example .*ok$'
says summary.txt 'memcheck .*ok$'
says summary.txt 'racecheck .*left out: not done'
says summary.txt 'initcheck .*left out: does not support'
says summary.txt 'bench .*ok$'
says summary.txt 'compare .*left out: PyTorch'
says device.json 'Stand-in'
says logs.txt '==> memcheck'
python3 - "$folder/out" <<'end' || fail "goals.json is not complete"
import json, sys
with open(sys.argv[1] + "/goals.json") as file:
    goals = json.load(file)["goals"]
assert {g["goal"] for g in goals} == {f"G{i}" for i in range(1, 13)} | {"H1", "H2", "H7", "H8"}, goals
missing = [g for g in goals if g["measured"] is None and "times" not in g["figure"]]
assert not missing, missing
end

# A sanitizer that fails itself is run again.
STAND_IN_TROUBLE=$folder/trouble run_gpu 0 test
[ -e "$folder/trouble" ] || fail "memcheck was not run"
says summary.txt 'memcheck .*ok$'

# What a sanitizer finds is a failure.
STAND_IN_ERROR=1 run_gpu 1 test
says summary.txt 'synccheck .*FAILED'

# Of a benchmark that is killed the rows until then are there, and are judged.
program programs/gradscaler_gpu_bench <<end
"$bench" --small "\$@" &
while rows=\$(grep -c . "\$2" 2>/dev/null); [ "\${rows:-0}" -lt 5 ]; do sleep 0.05; done
kill -KILL \$!
wait \$!
end
run_gpu 1 bench
says summary.txt 'bench .*FAILED'
says table.md 'G1 . check, fp16 grads . of copy >= 1.0 . [0-9.]+ . (not )?met'
says table.md 'not measured'

# Without a device there is nothing to do.
program bin/nvidia-smi <<<'exit 9'
run_gpu 2 all
echo "dry run: ok"
