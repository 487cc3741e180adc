# SPDX-License-Identifier: Apache-2.0
"""
Recipe of Conan 2, of the sources around it: `conan create packaging/conan --build=missing`.

CUDA is in no remote of Conan. Its headers, or its toolkit, are found as CMake finds them: CUDAToolkit_ROOT or
PenstockCudaHeaders_ROOT of the environment may say where. The options images, remote, video and tools need packages of Conan
Center.
Without them the recipe needs no network.
"""

import pathlib
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, rmdir
from conan.tools.scm import Version

# The options that CMake has, by the recipe's.
CMAKE_OPTIONS = {
    "with_cuda": ["PENSTOCK_WITH_CUDA"],
    "with_emulation": ["PENSTOCK_WITH_EMULATION"],
    "with_nvtx": ["PENSTOCK_WITH_NVTX"],
    "images": ["PENSTOCK_BUILD_IMAGES"],
    "remote": ["PENSTOCK_BUILD_REMOTE"],
    "video": ["PENSTOCK_BUILD_VIDEO"],
    "gds": ["PENSTOCK_BUILD_GDS"],
    "trace": ["PENSTOCK_BUILD_TRACE"],
    "tools": ["PENSTOCK_BUILD_TRACE_PROGRAM", "PENSTOCK_BUILD_PACK_PROGRAM"],
}


class Penstock(ConanFile):
    name = "penstock"
    description = "GPU input-pipeline primitives for CUDA C++"
    license = "Apache-2.0"
    topics = ("cuda", "gpu", "data-loading", "input-pipeline", "prefetching")
    package_type = "static-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {name: [True, False] for name in CMAKE_OPTIONS}
    default_options = {
        "with_cuda": True,  # penstock::penstock. It needs a CUDA toolkit of the machine; without one: with_cuda=False
        "with_emulation": True,  # penstock::emulated
        "with_nvtx": True,
        "images": False,
        "remote": False,
        "video": False,  # with images=True
        "gds": False,
        "trace": False,
        "tools": False,  # penstock-pack, and with trace=True penstock-trace
    }

    def set_version(self):
        text = (self._sources() / "include/penstock/version.hpp").read_text()
        self.version = ".".join(re.findall(r"^#define PENSTOCK_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", text, re.M))

    def _sources(self):
        return pathlib.Path(self.recipe_folder).parents[1]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*"):
            copy(self, pattern, self._sources(), self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        if self.options.images:
            self.requires("libjpeg-turbo/[>=2.1 <4]")
        if self.options.remote:
            self.requires("libcurl/[>=7.78 <9]")
            self.requires("openssl/[>=3 <4]")
            self.requires("expat/[>=2.5 <3]")
            self.requires("nlohmann_json/[>=3.10 <4]", visible=False)
        if self.options.video:  # Shared, since FFmpeg's static libraries need what only its own configuration knows.
            self.requires("ffmpeg/[>=5 <9]", options={"shared": True}, transitive_headers=True)
            if self.options.with_cuda:
                self.requires("nv-codec-headers/[>=11.1]", visible=False)
        if self.options.tools:
            self.requires("cli11/[>=2.1 <3]", visible=False)

    def validate(self):
        if self.settings.os != "Linux":
            raise ConanInvalidConfiguration("penstock is for Linux alone")
        least = {"gcc": "12", "clang": "14"}.get(str(self.settings.compiler))
        if least and Version(self.settings.compiler.version) < least:
            raise ConanInvalidConfiguration(f"penstock needs {self.settings.compiler} {least} or newer")

        if self.options.video and not self.options.images:
            raise ConanInvalidConfiguration("the option video needs images=True")

    def package_id(self):
        # The library is compiled as C++20 whatever the profile says, and so is a target that links it.
        self.info.settings.compiler.rm_safe("cppstd")

    def generate(self):
        # expat's own CMake package has another target than the module, for which Conan writes one too.
        self.conf.define("tools.cmake.cmaketoolchain:find_package_prefer_config", False)
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False
        for option, names in CMAKE_OPTIONS.items():
            for name in names:
                toolchain.cache_variables[name] = bool(self.options.get_safe(option))
        toolchain.cache_variables["PENSTOCK_VIDEO_WITH_NVDEC"] = bool(self.options.video and self.options.with_cuda)
        if not self.options.trace:
            toolchain.cache_variables["PENSTOCK_BUILD_TRACE_PROGRAM"] = False
        for part in ("TESTS", "EXAMPLES", "BENCHMARKS"):
            toolchain.cache_variables[f"PENSTOCK_BUILD_{part}"] = False
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, pathlib.Path(self.package_folder, "licenses"))
        CMake(self).install()
        rmdir(self, pathlib.Path(self.package_folder, "share"))

    def package_info(self):
        # The CMake package of penstock itself is used: it knows what links what, and that a program has one runtime. So no
        # library is listed here, and CMakeDeps writes no file. pkg-config finds penstock's files in lib/pkgconfig.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/penstock"]
        self.cpp_info.bindirs = ["bin"] if self.options.tools else []
