# SPDX-License-Identifier: Apache-2.0
"""Conan 2 recipe, from these sources: conan create packaging/conan. Without CUDA; it has no requirements."""

import pathlib
import re
import shutil

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain
from conan.tools.files import copy


class GradscalerConan(ConanFile):
    name = "gradscaler"
    description = "Dynamic loss scaling and the fused tail of a mixed-precision training step"
    license = "Apache-2.0"
    topics = ("mixed-precision", "loss-scaling", "optimizer", "deep-learning")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "fPIC": [True, False]}
    default_options = {"shared": True, "fPIC": True}
    implements = ["auto_shared_fpic"]

    def set_version(self):
        header = pathlib.Path(self.recipe_folder, "../../include/gradscaler/gradscaler.h").read_text()
        self.version = ".".join(re.findall(r"#define GSC_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))

    def export_sources(self):
        root = pathlib.Path(self.recipe_folder, "../..").resolve()
        for pattern in ("CMakeLists.txt", "LICENSE", "CITATION.cff", "cmake/*", "core/*", "capi/*", "include/*"):
            copy(self, pattern, root, self.export_sources_folder)

    def validate(self):
        if self.settings.compiler == "msvc":
            raise ConanInvalidConfiguration("the kernels need GCC or Clang; on Windows use MinGW")
        if self.settings.compiler.get_safe("cppstd"):
            check_min_cppstd(self, 20)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "EXAMPLES", "BENCHMARKS"):
            toolchain.cache_variables[f"GRADSCALER_BUILD_{part}"] = False
        for part in ("CUDA", "VULKAN"):
            toolchain.cache_variables[f"GRADSCALER_{part}"] = "OFF"
        toolchain.cache_variables["GRADSCALER_SHARED"] = bool(self.options.shared)
        toolchain.cache_variables["GRADSCALER_STATIC"] = not self.options.shared
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, pathlib.Path(self.package_folder, "licenses"))
        # Conan's own files tell consumers where the package lies.
        for folder in ("lib/cmake", "lib/pkgconfig", "share"):
            shutil.rmtree(pathlib.Path(self.package_folder, folder), ignore_errors=True)

    def package_info(self):
        self.cpp_info.libs = ["gradscaler"]
        self.cpp_info.set_property("cmake_file_name", "gradscaler")
        self.cpp_info.set_property("pkg_config_name", "gradscaler")
        target = "gradscaler" if self.options.shared else "gradscaler_static"
        self.cpp_info.set_property("cmake_target_name", f"gradscaler::{target}")
        if not self.options.shared:
            self.cpp_info.defines = ["GSC_STATIC"]
            if self.settings.os == "Linux":
                self.cpp_info.system_libs = ["stdc++", "m", "pthread"]
