# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The part jars of scripts/package, which sources it: the jar of classes, a jar of natives for every target, and the
# folder from which Maven publishes them. Tests the loader's choice: a training step in a JVM of every system that runs
# here, with all natives on its class path.
# shellcheck disable=SC2154 # variables of scripts/package and packaging/targets.sh

# java_of <target>: the java program of a JDK, or the one that scripts/setup packages has put into build/jre.
java_of() {
  case $1 in
    linux-x86_64) command -v java ;;
    windows-*) realpath -e "build/jre/$1/bin/java.exe" 2>/dev/null ;;
    *) realpath -e "build/jre/$1/bin/java" 2>/dev/null ;;
  esac
}

build_jars() { # <target>
  configure_target "$1" "build/platforms/$1" -DGRADSCALER_BUILD_TESTS=OFF -DGRADSCALER_BINDINGS=java &&
    cmake --build "build/platforms/$1" --target gradscaler_java
}

# Checks a jar of natives: no paths of this machine; the exports, dependencies and glibc of its library.
inspect_natives() { # <jar> <target>
  local folder=$work/natives/$2 library
  fresh "$folder" && python3 -m zipfile -e "$1" "$folder" &&
    library=$(find "$folder/io/github/gradscaler/natives/$2" -name '*gradscaler_jni*') &&
    holds_no_paths "$folder" && inspect "$library" exports --prefix Java_io_github_gradscaler_ && inspect "$library" needed &&
    { [ -z "$glibc" ] || inspect "$library" floor --glibc "$glibc"; }
}

run_jars() { # <target>: with all jars of $out
  local separator=: empty=$work/empty/java java path
  java=$(java_of "$1") || return
  [[ $1 == windows-* ]] && separator=";"
  path=$(cd "$empty" && printf "$separator%s" *.jar)
  (cd "$empty" && run_program "$java" -cp "classes$path" consumer.Step) | tee /dev/stderr |
    grep -F 'class path: weight -1.5, scale 32768.0' >/dev/null
}

jars() {
  local target name where natives=() empty=$work/empty/java classes=gradscaler-$version.jar project=$work/maven
  why=$(command -v javac >/dev/null || echo "no JDK")
  [ -n "$why" ] || why=$(command -v swig >/dev/null || echo "no SWIG")
  if [ -n "$why" ]; then
    report "$classes and natives" no "" "left out: $why"
    return
  fi
  rm -f "$out"/gradscaler-*.jar
  fresh "$project"
  for target in $release_targets; do
    read_target "$target"
    name=gradscaler-$version-natives-$target.jar
    if ! quietly "$name" build_jars "$target"; then
      report "$name" no "" "FAILED: the build"
    elif ! quietly "$name" inspect_natives "build/platforms/$target/java/$name" "$target"; then
      report "$name" yes "" "FAILED: what its library needs, exports or holds"
    else
      natives+=("$target")
      cp "build/platforms/$target/java/$name" "$out"
      cp -r "build/platforms/$target/java/project/." "$project"
      [ "$target" != linux-x86_64 ] || cp "build/platforms/$target/java/gradscaler-$version"{,-sources,-javadoc}.jar "$out"
    fi
  done
  fresh "$empty"
  cp "$out/gradscaler-$version"{,-natives-*}.jar "$empty"
  if ! quietly "$classes" javac --release 11 -cp "$empty/$classes" -d "$empty/classes" \
    examples/java/consumer/src/main/java/consumer/Step.java; then
    report "$classes" yes "" "FAILED: a program against it"
    return
  fi
  if [[ $(python3 -m zipfile -l "$out/$classes") == *META-INF/versions/22/* ]]; then
    report "$classes" yes "a program, with all jars below" ok
  else
    report "$classes" yes "" "FAILED: no JDK 22 here, so that Tensor.of(MemorySegment) is not in it"
  fi
  for target in "${natives[@]}"; do
    read_target "$target"
    name=gradscaler-$version-natives-$target.jar
    why=$(why_not_run)
    [ -n "$why" ] || why=$(java_of "$target" >/dev/null || echo "no JVM for it (scripts/setup packages)")
    if [ -n "$why" ]; then
      report "$name" yes "nowhere: $why" "not tested"
      continue
    fi
    where="an empty folder, a JVM, $runs_on"
    if quietly "$name" run_jars "$target"; then
      report "$name" yes "$where" ok
    else
      report "$name" yes "$where" "FAILED: a program that uses it"
    fi
  done
}
