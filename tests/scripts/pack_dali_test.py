#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pack_dali_test.py GPU_CHECK: scripts/gpu_check/pack_dali.py packs wheels that are made up. Of a library's device code
that of one architecture stays, byte for byte and where it was; what is not needed is left out."""

import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

sys.dont_write_bytecode = True
folder = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(folder))
import pack_dali

PTX, CUBIN = 1, 2


def require(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def entry(kind, arch, payload, header=64):
    """One entry of a container: what kind it is, for which architecture, and the code."""
    begin = struct.pack("<HHIQ", kind, 0x101, header, len(payload)) + bytes(12) + struct.pack("<I", arch)
    return begin + b"h" * (header - len(begin)) + payload


def container(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(path, sections):
    """An ELF file with these sections: this machine's own object file."""
    path.write_text("int answer() { return 42; }\n")
    source, made = path.with_suffix(".c"), path.with_suffix(".o")
    path.rename(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-g", "-o", made, source], check=True)
    for name, data in sections.items():
        path.with_suffix(".bin").write_bytes(data)
        subprocess.run(["objcopy", f"--add-section={name}={path.with_suffix('.bin')}", made], check=True)
    made.rename(path)
    source.unlink()
    path.with_suffix(".bin").unlink(missing_ok=True)
    return path


def code():
    """Two containers, with something between them."""
    first = container(entry(CUBIN, 80, b"a" * 48), entry(CUBIN, 90, b"b" * 40), entry(CUBIN, 100, b"c" * 56, 120))
    second = container(entry(PTX, 90, b"p" * 24, 80), entry(CUBIN, 90, b"d" * 8))
    return first + bytes(24) + second


def device_code(scratch):
    path = library(scratch / "libcode.so", {".nv_fatbin": code(), "__nv_relfatbin": container(entry(CUBIN, 75, b"r" * 16))})
    before = path.read_bytes()
    require(pack_dali.clear_other_code(path, 90) == (48, 144), "other bytes are kept or cleared")
    after = path.read_bytes()
    require(len(after) == len(before), "the file has another length")
    expected = before
    for payload in (b"a" * 48, b"c" * 56, b"p" * 24, b"r" * 16):
        expected = expected.replace(payload, bytes(len(payload)))
    require(after == expected, "other bytes have changed")
    require(b"b" * 40 in after and b"d" * 8 in after, "the code of the architecture is gone")

    none = library(scratch / "libnone.so", {})
    before = none.read_bytes()
    require(pack_dali.clear_other_code(none, 90) == (0, 0) and none.read_bytes() == before, "a library without code")
    text = scratch / "text.so"
    text.write_text("GROUP ( libc.so.6 )")
    require(pack_dali.clear_other_code(text, 90) == (0, 0), "a linker's script")
    for sections, what in (({".nv_fatbin": container(entry(CUBIN, 80, b"a" * 8))}, "no device code for sm_90"),
                           ({".nv_fatbin": container(entry(CUBIN, 90, b"a" * 8, 4))}, "not known"),
                           ({".nv_fatbin": container(entry(CUBIN, 90, b"a" * 8))[:-4]}, "not known")):  # fmt: skip
        odd = library(scratch / "libodd.so", sections)
        before = odd.read_bytes()
        try:
            pack_dali.clear_other_code(odd, 90)
        except SystemExit as error:
            require(what in str(error), error)
        else:
            require(False, f"packed: {what}")
        require(odd.read_bytes() == before, "changed before the error")


def wheels(scratch):
    wheel = scratch / "wheels/nvidia_dali_cuda130-2.4.0-py3-none-any.whl"
    wheel.parent.mkdir()
    path = library(scratch / "libcode.so", {".nv_fatbin": code()})
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(path, "nvidia/dali/libdali.so")
        for name in ("nvidia/dali/__init__.py", "nvidia/dali/test/large.py", "nvidia/dali/plugin/pytorch/__init__.py",
                     "nvidia/dali/backend.cpython-312-x86_64-linux-gnu.txt", "nvidia/dali/backend.cpython-311-x86_64-linux-gnu.txt",
                     "nvidia/dali/include/dali.h", "nvidia_dali-2.4.0.dist-info/licenses/LICENSE"):  # fmt: skip
            archive.writestr(name, name)
    packed, unpacked = scratch / "deep/dali.tar.xz", scratch / "unpacked"
    script = [sys.executable, "-B", folder / "pack_dali.py"]
    done = subprocess.run([*script, "--wheels", wheel.parent, "--python", "3.12", "--out", packed], capture_output=True,
                          text=True)  # fmt: skip
    require(done.returncode == 0 and "MiB" in done.stdout, done)
    subprocess.run([*script, "--unpack", packed, "--out", unpacked], check=True)
    found = sorted(str(file.relative_to(unpacked)) for file in unpacked.rglob("*") if file.is_file())
    require(found == ["nvidia/dali/__init__.py", "nvidia/dali/backend.cpython-312-x86_64-linux-gnu.txt",
                      "nvidia/dali/libdali.so", "nvidia/dali/plugin/pytorch/__init__.py",
                      "nvidia_dali-2.4.0.dist-info/licenses/LICENSE"], found)  # fmt: skip
    made = (unpacked / "nvidia/dali/libdali.so").read_bytes()
    require(b"b" * 40 in made and b"a" * 48 not in made, "the library's device code")
    require(len(made) < path.stat().st_size, "it is not stripped")


if missing := [name for name in ("cc", "objcopy", "strip", "xz", "tar") if shutil.which(name) is None]:
    print(f"skipped: there is no {missing[0]}")
    sys.exit(77)
for case in (device_code, wheels):
    with tempfile.TemporaryDirectory() as scratch:
        case(pathlib.Path(scratch))
print("passed")
