#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiler launcher for nvcc: runs the command and puts what ptxas says about registers and spills into <object>.usage,
# for the test that reads it, instead of on the screen. Everything else that the compiler says is passed on.
output=
previous=
for argument in "$@"; do
  [ "$previous" = -o ] && output=$argument
  previous=$argument
done
[ -n "$output" ] || exec "$@"
"$@" 2>"$output.messages"
status=$?
usage='^ptxas info|^ *[0-9]+ bytes (stack frame|gmem)|^$'
grep -E "$usage" "$output.messages" >"$output.usage"
grep -vE "$usage" "$output.messages" >&2
rm -f "$output.messages"
exit $status
