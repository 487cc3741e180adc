#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
pack_dali.py --out FILE.tar.xz [--python 3.12] [--arch 90] [--keep DIRECTORY]
pack_dali.py --unpack FILE.tar.xz --out DIRECTORY

Packs NVIDIA DALI for a machine without a network. The archive has the packages that benchmarks/peers/dali_images.py imports,
and is unpacked into a folder of PYTHONPATH. `scripts/setup dali` and `scripts/gpu-check images` call this.

The wheels come from PyPI: nvidia-dali-cuda130 and what it imports, for x86-64 and the Python of the other machine. To keep
the archive small, tests, headers, tools and the libraries for other Pythons are left out, and symbols that only debuggers
read are stripped. Device code for GPUs other than --arch is overwritten with zeros, which compress well. The file keeps its
layout, and CUDA does not read that code on a GPU of --arch. So the result runs only on GPUs of this architecture (90: H100,
H200). The archive has NVIDIA's licences.

--keep DIRECTORY keeps the unpacked tree there. It needs pip, strip and xz.
"""

import argparse
import pathlib
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile

CONTAINER = struct.pack("<I", 0xBA55ED50)  # begins a container of device code (fatbinary)
LOCK = pathlib.Path(__file__).parent.parent / "locks/dali.txt"  # what dali_images.py imports
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 17)] + ["manylinux2014_x86_64", "any"]
# Folders and files that no program here reads.
USELESS = ("nvidia/dali/test/", "nvidia/dali/include/", "nvidia/dali/plugin/jax/", "nvidia/dali/plugin/numba/",
           "nvidia/dali/plugin/tf.py", "nvidia/dali/plugin/paddle.py", "nvidia/nvimgcodec/include/",
           "nvidia/nvimgcodec/tools/", "nvidia/nvimgcodec/extensions/libopencv_ext", "nvidia/nvimgcodec/extensions/libnvtiff_ext",
           "nvidia/nvimgcodec/extensions/libnvjpeg2k_ext", "nvidia/nvimgcodec/extensions/libtiff_ext")  # fmt: skip


def download(python, folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--require-hashes", "--requirement", LOCK, "--only-binary=:all:", "--implementation", "cp",
               "--python-version", python, "--dest", folder]  # fmt: skip
    for platform in PLATFORMS:
        command += ["--platform", platform]
    if subprocess.run(command).returncode != 0:
        sys.exit("pack_dali.py: pip could not get the wheels: is PyPI within reach?")


def is_of_another_python(name, python):
    tag = "cpython-" + python.replace(".", "")
    return ".cpython-" in name and f".{tag}-" not in name


def unpack(wheel, python, folder):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.startswith(USELESS) and not is_of_another_python(name, python):
                archive.extract(name, folder)


def code_sections(data):
    """Returns (offset, size) of the sections with device code of a 64-bit ELF file."""
    if data[:5] != b"\x7fELF\x02":
        return []
    table, = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + size * i) for i in range(count)]
    found = []
    for header in headers:
        at = headers[names][4] + header[0]
        if data[at : data.index(b"\0", at)] in (b".nv_fatbin", b"__nv_relfatbin"):
            found.append((header[4], header[5]))
    return found


def clear_other_code(path, arch):
    """Overwrites device code for other architectures, and PTX, with zeros. Returns (bytes kept, bytes cleared)."""
    data = bytearray(path.read_bytes())
    kept = cleared = 0
    for begin, size in code_sections(data):
        at, end = begin, begin + size
        while (at := data.find(CONTAINER, at, end)) >= 0:
            header, size = struct.unpack_from("<HQ", data, at + 6)
            entry, last = at + header, at + header + size
            while entry < last:
                kind, _, length, payload = struct.unpack_from("<HHIQ", data, entry)
                of, = struct.unpack_from("<I", data, entry + 28)
                if length < 32 or entry + length + payload > end:
                    sys.exit(f"pack_dali.py: {path.name} has device code of a format that is not known here")
                if kind == 2 and of == arch:
                    kept += payload
                else:
                    data[entry + length : entry + length + payload] = bytes(payload)
                    cleared += payload
                entry += length + payload
            at = last
    if kept == 0 and cleared > 0:
        sys.exit(f"pack_dali.py: {path.name} has no device code for sm_{arch}")
    path.write_bytes(data)
    return kept, cleared


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--python", default="%d.%d" % sys.version_info[:2])
    parser.add_argument("--arch", type=int, default=90)
    parser.add_argument("--wheels", type=pathlib.Path, help=argparse.SUPPRESS)  # a folder that has them already
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--unpack", type=pathlib.Path)
    option = parser.parse_args()
    if option.unpack:
        with tarfile.open(option.unpack, "r:xz") as archive:
            archive.extractall(option.out)
        return
    for command in ("strip", "xz"):
        if shutil.which(command) is None:
            sys.exit(f"pack_dali.py: {command} is missing")
    with tempfile.TemporaryDirectory() as scratch:
        wheels, tree = option.wheels or pathlib.Path(scratch, "wheels"), option.keep or pathlib.Path(scratch, "tree")
        if option.wheels is None:
            download(option.python, wheels)
        tree.mkdir(parents=True, exist_ok=True)
        for wheel in sorted(wheels.glob("*.whl")):
            unpack(wheel, option.python, tree)
        for library in sorted(path for path in tree.rglob("*.so*") if path.is_file() and not path.is_symlink()):
            subprocess.run(["strip", "--strip-unneeded", library], check=True)
            kept, cleared = clear_other_code(library, option.arch)
            if kept + cleared > 0:
                print(f"{library.name}: device code {kept / 2**20:.1f} MiB kept, {cleared / 2**20:.1f} MiB cleared", flush=True)
        option.out.parent.mkdir(parents=True, exist_ok=True)
        partial = option.out.with_name(option.out.name + ".partial")
        with partial.open("wb") as out:
            files = subprocess.Popen(["tar", "-C", tree, "--sort=name", "--owner=0", "--group=0", "--mtime=@0", "-c", "."],
                                     stdout=subprocess.PIPE)  # fmt: skip
            # What the processor's jumps lead to is packed as addresses, which come again.
            packed = subprocess.run(["xz", "--x86", "--lzma2=preset=9e,dict=192MiB", "-T1", "-c"], stdin=files.stdout, stdout=out)
            files.stdout.close()
            if files.wait() != 0 or packed.returncode != 0:
                sys.exit("pack_dali.py: tar or xz failed")
        partial.rename(option.out)
    print(f"{option.out}: {option.out.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
