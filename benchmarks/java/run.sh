#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a step and an update cost in C, from Java by the package (JNI), and by java.lang.foreign, in one run. Usage:
# benchmarks/java/run.sh. Writes benchmarks/results/<processor>/java.json (JMH's own file, and C before and after it).
# Needs what the Java binding needs, Maven, Maven Central and a JDK of version 22 or later.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=build/bench-java

scripts/setup java
cmake --preset release -B $build -DGRADSCALER_JAVA=ON -DGRADSCALER_PYTHON=OFF -DGRADSCALER_CSHARP=OFF \
  -DGRADSCALER_CUDA=OFF -DGRADSCALER_BUILD_EXAMPLES=OFF -DGRADSCALER_BUILD_TESTS=ON >/dev/null
cmake --build $build --target gradscaler gradscaler_java java_overhead_reference -j "$(nproc)" >/dev/null
jdk=$(sed -n 's/^GSC_NEW_JDK:.*=//p' $build/CMakeCache.txt)
[ -n "$jdk" ] || { echo "bench: no JDK of version 22 or later was found" >&2; exit 1; }
export JAVA_HOME=${jdk%/bin}
root=$PWD
maven() { (cd "$1" && shift && mvn -q -B -ntp -Dstyle.color=never -Dmaven.repo.local="$root/$build/m2" "$@"); }
maven $build/java/project install
rm -rf $build/calls
cp -r benchmarks/java $build/calls
maven $build/calls -Dforeign="$root/examples/java/foreign" process-classes

c() { $build/tests/java/java_overhead_reference adamw; }
before=$(c)
"$jdk/java" --enable-native-access=ALL-UNNAMED -Dgradscaler.so="$root/$build/lib/libgradscaler.so" \
  -cp "$build/calls/target/classes:$build/calls/target/lib/*" org.openjdk.jmh.Main Calls -f 3 -wi 3 -w 1 -i 5 -r 1 \
  -jvmArgsAppend --enable-native-access=ALL-UNNAMED -rf json -rff $build/jmh.json
after=$(c)

python3 - $build/jmh.json "$before" "$after" <<'PYTHON'
import json
import pathlib
import sys

sys.path.insert(0, "benchmarks")
import table  # noqa: E402

jmh = json.load(open(sys.argv[1]))
for run in jmh:  # paths of this machine
    del run["jvm"], run["jvmArgs"]
c = [int(sys.argv[2]), int(sys.argv[3])]
out = pathlib.Path("benchmarks/results") / table.slug() / "java.json"
out.parent.mkdir(parents=True, exist_ok=True)
out.write_text(json.dumps({"c_ns": c, "jmh": jmh}, indent=1) + "\n")
print(f"step and update over one element: C {c[0]} and {c[1]} ns")
for run in jmh:
    score = run["primaryMetric"]
    print(f"{run['benchmark'].split('.')[-1]}: {score['score']:.0f} +- {score['scoreError']:.0f} ns")
print(f"wrote {out}")
PYTHON
