#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compiler launcher for nvcc: runs the command and writes the messages of ptxas about registers and spills to
# <object>.usage, for the test that reads them. All other output is passed on.
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
