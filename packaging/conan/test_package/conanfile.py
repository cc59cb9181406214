# SPDX-License-Identifier: Apache-2.0
"""Uses the package as a consumer does, with the program of tests/install."""

import pathlib

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class TestPackage(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        shared = self.dependencies["gradscaler"].options.shared
        cmake = CMake(self)
        cmake.configure({"VARIANT": "gradscaler" if shared else "gradscaler_static"},
                        build_script_folder=pathlib.Path(self.recipe_folder, "../../../tests/install/outside"))
        cmake.build()

    def test(self):
        if can_run(self):
            self.run(str(pathlib.Path(self.build_folder, self.cpp.build.bindir, "outside")), env="conanrun")
