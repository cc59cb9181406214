# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The part recipes of scripts/package, which sources it: the recipes in packaging/, each built from these sources by its
# own tool, and the result used by the program of tests/install. A recipe without its tool is reported as not built.
# shellcheck disable=SC2154 # variables of scripts/package

# Built from the recipe, and used by its test package.
conan() {
  local shared
  export CONAN_HOME=$work/conan
  fresh "$CONAN_HOME"
  quietly conan "$tools/conan" profile detect
  for shared in True False; do
    if quietly conan "$tools/conan" create packaging/conan --no-remote -s compiler.cppstd=20 \
      -o "gradscaler/*:shared=$shared" -c tools.cmake.cmaketoolchain:generator=Ninja \
      -c tools.cmake.cmake_layout:test_folder="$work/conan-test"; then
      report "Conan recipe, shared=$shared" yes "Conan's test_package" ok
    else
      report "Conan recipe, shared=$shared" no "" "FAILED"
    fi
  done
}

# Built and tested by rattler-build as a Python library, the form that PyPI has. Uses this machine's compiler: conda's
# own would come from a channel.
conda_build() {
  "$tools/python" - "$1" <<'end'
import sys
import rattler_build
recipe = rattler_build.Stage0Recipe.from_file("packaging/conda/recipe.yaml")
variant, = recipe.render(rattler_build.VariantConfig({"tools": ["system"]}))
built = variant.run_build(rattler_build.ToolConfiguration(test_strategy="native"), output_dir=sys.argv[1], channels=[],
                          env_isolation=rattler_build.EnvironmentIsolation.NONE)
print(*built.packages)
end
}

conda() {
  fresh "$work/conda"
  if quietly conda conda_build "$work/conda"; then
    report "conda recipe" yes "rattler-build, with this machine's compiler" ok
  else
    report "conda recipe" no "" "FAILED"
  fi
}

# With the vcpkg of VCPKG_ROOT, as an overlay, shared and static.
vcpkg() {
  local triplet variant
  if [ ! -x "${VCPKG_ROOT:-}/vcpkg" ]; then
    report "vcpkg port" no "" "not tested: no vcpkg here (VCPKG_ROOT)"
    return
  fi
  for triplet in x64-linux-dynamic x64-linux; do
    variant=gradscaler
    [ $triplet = x64-linux ] && variant=gradscaler_static
    fresh "$work/vcpkg/$triplet"
    if quietly vcpkg env VCPKG_FORCE_SYSTEM_BINARIES=1 "$VCPKG_ROOT/vcpkg" install gradscaler --disable-metrics \
      --triplet $triplet --host-triplet x64-linux --overlay-ports=packaging/vcpkg --binarysource=clear \
      --x-install-root="$work/vcpkg/$triplet/installed" --x-buildtrees-root="$work/vcpkg/$triplet/trees" \
      --x-packages-root="$work/vcpkg/$triplet/packages" &&
      quietly vcpkg cmake -G Ninja -S tests/install/outside -B "$work/vcpkg/$triplet/outside" -DVARIANT=$variant \
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/vcpkg/$triplet/installed/$triplet" &&
      quietly vcpkg cmake --build "$work/vcpkg/$triplet/outside" && quietly vcpkg "$work/vcpkg/$triplet/outside/outside"; then
      report "vcpkg port, $triplet" yes "a program, by find_package" ok
    else
      report "vcpkg port, $triplet" no "" "FAILED"
    fi
  done
}
