# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The part wheels of scripts/package, which sources it: the source distribution, and from it a wheel for Python 3.11 and
# later (abi3) for each target. Tests that pip selects the wheel for its platform, and runs the tests in an interpreter
# of the platform: the native one, Debian's for AArch64 under qemu, CPython for Windows under wine.
# shellcheck disable=SC2154 # variables of scripts/package and packaging/targets.sh

# CPython for Windows from Maven Central: headers, import libraries, interpreter and standard library.
windows_python=org.bytedeco:cpython:3.11.3-1.5.9:jar:windows-x86_64

# A NumPy that works under wine: later ones call C runtime functions that wine 8 lacks.
wine_numpy='numpy==1.26.*'

# platform_of <target>: the end of its wheel's name.
platform_of() {
  case $1 in
    linux-*) echo "manylinux_2_17_${1#linux-}" ;;
    windows-x86_64) echo win_amd64 ;;
  esac
}

# Puts the Python of a foreign target into $python_root. If there is none, fails with the reason in $why.
find_python() { # <target>
  python_root=$work/python-$1 why=""
  [ -e "$python_root/complete" ] && return
  fresh "$python_root"
  case $1 in
    linux-aarch64) unpack_debian arm64 ;;
    windows-x86_64) unpack_windows ;;
    *) why="nothing here runs it" ;;
  esac
  [ -z "$why" ] && touch "$python_root/complete"
}

# Unpacked and not installed: nothing of it runs but Python. From DEBIAN_MIRROR, else debootstrap's own choice.
unpack_debian() { # <architecture>
  local package
  if ! command -v debootstrap >/dev/null; then
    why="no debootstrap"
  elif [ "$(id -u)" != 0 ]; then
    why="not root"
  elif ! debootstrap --foreign --variant=minbase --arch="$1" --include=python3 bookworm "$python_root" \
    "${DEBIAN_MIRROR:-}" >"$work/debootstrap-$1.log" 2>&1; then
    why="Debian's archive does not answer"
  else
    for package in "$python_root"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$package" "$python_root"; done
  fi
}

# The jar has no python3.dll, through which an abi3 module calls the interpreter. The one made here forwards the names
# of the import library, as that of CPython's installer does.
unpack_windows() {
  local jar=$work/windows-python
  fresh "$jar"
  command -v mvn >/dev/null || { why="no mvn (scripts/setup java)"; return; }
  mvn -q -B dependency:copy -Dartifact="$windows_python" -DoutputDirectory="$jar" >"$work/mvn.log" 2>&1 ||
    { why="Maven Central does not answer, or has no ${windows_python%:jar*}"; return; }
  python3 -m zipfile -e "$jar"/*.jar "$jar"
  mv "$jar"/org/bytedeco/cpython/windows-x86_64/* "$python_root"
  {
    printf 'LIBRARY python3.dll\nEXPORTS\n'
    nm "$python_root/libs/python3.lib" 2>/dev/null | sed -n 's/.* __imp_//p' | sort -u | sed 's/.*/  & = python311.&/'
  } >"$jar/python3.def"
  echo 'int DllMainCRTStartup(void *a, unsigned b, void *c) { return 1; }' >"$jar/entry.c"
  "$zig" cc -target x86_64-windows-gnu -shared -nostdlib -o "$python_root/python3.dll" "$jar/entry.c" "$jar/python3.def" \
    >"$work/python3.dll.log" 2>&1 || why="python3.dll cannot be made, see $work/python3.dll.log"
}

# run_python [arguments...]: runs the interpreter of the target with $empty/site.
run_python() {
  export PYTHONPATH=$empty/site PYTHONDONTWRITEBYTECODE=1
  case $runs_on in
    qemu) qemu-aarch64 -L "$python_root" "$python_root/usr/bin/python3" "$@" ;;
    # Under wine Python accepts only pipes as its streams.
    wine) : | run_program "$python_root/python.exe" "$@" 2>&1 | cat ;;
  esac
}

# Puts the options of pip wheel for a target into $options. If it cannot be built, fails with the reason in $why.
options_for() { # <target>
  local include=$work/include-$1 config folder
  options=()
  case $1 in
    windows-*)
      find_python "$1" || return
      options=("cmake.define.Python_INCLUDE_DIR=$python_root/include"
        "cmake.define.Python_LIBRARY=$python_root/libs/python3.lib")
      ;;
    linux-*)
      # Debian's Python.h includes an architecture-specific header from a folder that zig does not search. What the
      # limited API uses of it is the same on all 64-bit Linux systems.
      config=$(python3 -c 'import sysconfig; print(sysconfig.get_config_h_filename())')
      folder=$include/${1#linux-}-linux-gnu/$(python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
      fresh "$folder" && cp "$config" "$folder"
      options=("cmake.define.CMAKE_C_FLAGS=-I$include")
      ;;
    *)
      why="no Python of this system to build against"
      return 1
      ;;
  esac
}

one_wheel() { # <target>
  local target=$1 raw=$work/wheel-$1 platform name wheel options why=""
  platform=$(platform_of "$target")
  name=gradscaler-$version-cp311-abi3-${platform:-$target}
  read_target "$target"
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || why="it takes Python 3.11"
  if [ -n "$why" ] || ! options_for "$target"; then
    report "$name" no "" "left out: $why"
    return
  fi
  fresh "$raw"
  if ! quietly "$name" "$tools/pip" wheel -v --no-deps -w "$raw" "$work/sdist/gradscaler-$version" \
    "${options[@]/#/--config-settings=}" --config-settings=install.strip=false --config-settings=wheel.py-api=cp311 \
    --config-settings=build-dir="$work/wheel-build-$target" \
    --config-settings=cmake.define.CMAKE_TOOLCHAIN_FILE="$PWD/cmake/toolchains/zig.cmake" \
    --config-settings=cmake.define.GRADSCALER_TARGET="$triple" --config-settings=cmake.define.GRADSCALER_ZIG="$zig" \
    --config-settings=cmake.define.GRADSCALER_CUDA=OFF --config-settings=cmake.define.GRADSCALER_VULKAN=OFF; then
    report "$name" no "" "FAILED: pip wheel"
    return
  fi
  rm -f "$out"/gradscaler-*"$platform.whl"
  if ! { quietly "$name" tag_wheel "$(compgen -G "$raw/*.whl")" "$platform" &&
    wheel=$(compgen -G "$out/gradscaler-*$platform.whl") && quietly "$name" "$tools/twine" check --strict "$wheel"; }; then
    report "$name" yes "" "FAILED: its tag, or twine"
    return
  fi
  test_wheel "$wheel" "$target"
}

# Into $out. Whether a wheel for Linux deserves its tag is checked by auditwheel, from the symbols it imports.
tag_wheel() { # <wheel> <platform>
  local wheel=$1 plain=${2/manylinux_2_17/linux}
  if [[ $wheel != *"$plain.whl" ]]; then
    "$tools/wheel" tags --remove --platform-tag "$plain" "$wheel" && wheel=$(compgen -G "${wheel%/*}/*.whl") || return
  fi
  case $2 in
    win_*) cp "$wheel" "$out" ;;
    *)
      # auto is the oldest tag allowed, for the wheel's processor; an explicit tag must be of this machine's processor.
      PATH=$tools:$PATH "$tools/auditwheel" repair --only-plat --plat auto -w "$out" "$wheel" &&
        PATH=$tools:$PATH "$tools/auditwheel" show "$(compgen -G "$out/gradscaler-*$2.whl")"
      ;;
  esac
}

# Checks what the files of an unpacked wheel need: an old glibc; on Windows no DLL that the wheel would have to bundle.
inspect_wheel() { # <folder>
  local file extra
  while read -r file; do
    if [ -n "$glibc" ]; then
      inspect "$file" floor --glibc "$glibc" || return
    else
      extra=$(objdump -p "$file" | sed -n 's/.*DLL Name: //p' |
        grep -vixE '(kernel32|ntdll|api-ms-win-crt-.*|python3|gradscaler)\.dll')
      [ -z "$extra" ] || { echo "$file needs $extra"; return 1; }
    fi
  done < <(find "$1" -type f \( -name '*.so*' -o -name '*.pyd' -o -name '*.dll' \))
}

test_wheel() { # <wheel> <target>
  local wheel=$1 name log empty=$work/empty/wheel-$2 where
  name=$(basename "$wheel")
  log=${name%.whl}
  fresh "$empty"
  python3 -m zipfile -e "$wheel" "$empty/unpacked"
  { quietly "$log" inspect_wheel "$empty/unpacked" && quietly "$log" holds_no_paths "$empty/unpacked"; } || { report "$name" yes "" "FAILED: what its files need or hold"; return; }
  if [ "$runs_on" = here ]; then test_wheel_here; else test_wheel_there "$2"; fi
}

test_wheel_there() { # <target>
  local more=()
  # pip resolves pytest's requirements for this machine, not for Windows.
  [ "$runs_on" = wine ] && more=(colorama "$wine_numpy")
  where="pip for $(platform_of "$1")"
  if ! quietly "$log" "$tools/pip" install -q --target "$empty/site" --platform "$(platform_of "$1")" \
    --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none --only-binary :all: "${wheel}[test]" \
    "${more[@]}"; then
    report "$name" yes "$where" "FAILED: pip does not take it"
    return
  fi
  why=$(why_not_run)
  if [ -n "$why" ] || ! find_python "$1"; then
    report "$name" yes "$where" "built, not run: $why"
    return
  fi
  where+="; tests in its Python, $runs_on"
  # Tests would start this machine's programs, or none.
  if (quietly "$log" run_python -m gradscaler info && quietly "$log" run_python -m pytest -c "$PWD/pyproject.toml" \
    --rootdir "$PWD" -m "not programs" "$PWD/tests/python"); then
    report "$name" yes "$where" "ok: $(grep -oE '[0-9]+ passed' "$work/$log.log" | tail -n 1)"
  else
    report "$name" yes "$where" "FAILED: its tests"
  fi
}

test_wheel_here() {
  where="a new environment, all tests"
  if ! { python3 -m venv "$empty/venv" && quietly "$log" "$empty/venv/bin/pip" install -q "${wheel}[test]" &&
    (cd "$empty" && quietly "$log" venv/bin/python -m gradscaler info &&
      quietly "$log" venv/bin/python -B -m pytest -c "$OLDPWD/pyproject.toml" --rootdir "$OLDPWD" \
        "$OLDPWD/tests/python"); }; then
    report "$name" yes "$where" "FAILED: its tests"
    return
  fi
  if make_old_root; then
    where+="; its library in Ubuntu 18.04"
    fresh "$old_root/gradscaler"
    cp "$empty"/unpacked/gradscaler/lib/libgradscaler.so.1 "$old_root/gradscaler"
    if ! { quietly "$log" compile_outside "$empty/unpacked/gradscaler/include" "$old_root/gradscaler/outside" &&
      quietly "$log" chroot "$old_root" /gradscaler/outside /gradscaler/libgradscaler.so.1; }; then
      report "$name" yes "$where" "FAILED: its library there"
      return
    fi
  else
    where+="; not with an old glibc: $why"
  fi
  report "$name" yes "$where" ok
}

# The wheels are built from the source distribution, not from here, so that it lacks nothing.
wheels() { # <targets...>
  local target sdist=gradscaler-$version.tar.gz
  rm -f "$out/$sdist"
  if ! { fresh "$work/sdist" && quietly sdist "$tools/python" -m build --sdist -o "$out" . &&
    quietly sdist "$tools/twine" check --strict "$out/$sdist" && tar -C "$work/sdist" -xzf "$out/$sdist"; }; then
    report "$sdist (sdist)" no "" FAILED
    return
  fi
  report "$sdist (sdist)" yes "twine; the wheels below are built from it" ok
  for target; do one_wheel "$target"; done
}
