# SPDX-License-Identifier: Apache-2.0
import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Penstock(CMakePackage):
    """GPU input-pipeline primitives for CUDA C++: pinned memory, workers that fill batches, a prefetcher. With an
    emulated CUDA runtime, to run and test all of it without a GPU."""

    git = "file://" + str(pathlib.Path(__file__).resolve().parents[6])  # the sources around this file

    license("Apache-2.0", checked_by="penstock")

    version("main", branch="main")

    variant("cuda", default=True, description="Provide penstock::penstock, over the CUDA runtime")
    variant("emulation", default=True, description="Provide penstock::emulated, a CUDA runtime on CPU threads")
    variant("nvtx", default=True, description="Compile the libraries with NVTX ranges")
    variant("images", default=False, description="Provide penstock::images: decoding, crops and resizing")
    variant("remote", default=False, description="Provide penstock::remote: files and objects of servers")
    variant("video", default=False, description="Provide penstock::video: clips of video files; needs +images")
    variant("gds", default=False, description="Provide penstock::gds: files read to device memory by cuFile")
    variant("trace", default=False, description="Provide penstock::trace: timeline, report, findings")
    variant("tools", default=False, description="Install penstock-pack, and with +trace penstock-trace")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("cuda@12.4:")  # its headers, also without +cuda
    depends_on("libjpeg-turbo@1.5:", when="+images")
    depends_on("curl@7.68:", when="+remote")
    depends_on("openssl@3:", when="+remote")
    depends_on("expat", when="+remote")
    depends_on("nlohmann-json@3.10:", when="+remote", type="build")
    depends_on("ffmpeg@5:", when="+video")
    depends_on("cli11@2.1:", when="+tools", type="build")

    for system in ("darwin", "windows", "freebsd"):
        conflicts(f"platform={system}", msg="penstock is for Linux alone")
    conflicts("~images", when="+video", msg="penstock::video needs penstock::images")
    conflicts("%gcc@:11", msg="penstock needs C++20")
    conflicts("%clang@:13", msg="penstock needs C++20")

    def cmake_args(self):
        both = self.spec.satisfies("+tools+trace")
        return [
            self.define_from_variant("PENSTOCK_WITH_CUDA", "cuda"),
            self.define_from_variant("PENSTOCK_WITH_EMULATION", "emulation"),
            self.define_from_variant("PENSTOCK_WITH_NVTX", "nvtx"),
            self.define_from_variant("PENSTOCK_BUILD_IMAGES", "images"),
            self.define_from_variant("PENSTOCK_BUILD_REMOTE", "remote"),
            self.define_from_variant("PENSTOCK_BUILD_VIDEO", "video"),
            self.define("PENSTOCK_VIDEO_WITH_NVDEC", "AUTO"),  # no package has the headers; the machine may have them
            self.define_from_variant("PENSTOCK_BUILD_GDS", "gds"),
            self.define_from_variant("PENSTOCK_BUILD_TRACE", "trace"),
            self.define_from_variant("PENSTOCK_BUILD_PACK_PROGRAM", "tools"),
            self.define("PENSTOCK_BUILD_TRACE_PROGRAM", both),
            self.define("PENSTOCK_BUILD_TESTS", False),
            self.define("PENSTOCK_BUILD_EXAMPLES", False),
            self.define("PENSTOCK_BUILD_BENCHMARKS", False),
        ]
