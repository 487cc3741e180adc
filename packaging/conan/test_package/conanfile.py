# SPDX-License-Identifier: Apache-2.0
"""
Builds the consumer of tests/system/package with the package. It links penstock::emulated and runs; without emulation it
links penstock::penstock, and runs where a GPU is.
"""

import os
import shutil

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout

CONSUMERS = "../../../tests/system/package"


class PenstockTest(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def _emulated(self):
        return bool(self.dependencies["penstock"].options.with_emulation)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder=os.path.join(CONSUMERS, "emulated" if self._emulated() else "runtime"))
        cmake.build()

    def test(self):
        if can_run(self) and (self._emulated() or shutil.which("nvidia-smi")):
            self.run(os.path.join(self.cpp.build.bindir, "consumer"), env="conanrun")
