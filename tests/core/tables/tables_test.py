#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The readers of tables over files that others have written.

    tables_test.py numpy TOOL        arrays that NumPy writes now; skipped (77) without NumPy
    tables_test.py written TOOL      the files in written/, and TFRecord files that this script writes
    tables_test.py write             writes written/ anew, by the packages tfrecord, mosaicml-streaming and numpy

written/ has what these packages wrote: TFRecordWriter of tfrecord 1.14.6, with messages by protobuf 7.36.2 and checksums
by crc32c 2.9, and MDSWriter of mosaicml-streaming 0.13.0. The latter was imported with stand-ins for torch and other
packages, which it does not need to write. What is in the files is computed here for both sides, so written/ has no list
of it.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import struct
import subprocess
import sys
import tempfile
import types
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
WRITTEN = HERE / "written"
wrong = []


def run(*arguments):
    return subprocess.run([TOOL, *map(str, arguments)], capture_output=True, text=True)


def check(what, lines, *arguments):
    """The tool prints these lines."""
    done = run(*arguments)
    found = done.stdout.splitlines()
    if done.returncode != 0:
        wrong.append(f"{what}: {done.stderr.strip()}")
    elif found != lines:
        at = next((i for i, pair in enumerate(zip(found, lines)) if pair[0] != pair[1]), min(len(found), len(lines)))
        wrong.append(f"{what}: line {at}: {found[at:at + 1]} and not {lines[at:at + 1]}")


def check_refused(what, part, *arguments):
    done = run(*arguments)
    if done.returncode != 1 or part not in done.stderr:
        wrong.append(f"{what}: {done.returncode}, {done.stderr.strip() or 'no error'}, and not: {part}")


# ---- NumPy ------------------------------------------------------------------------------------------------------------


def array_lines(array):
    return [array.dtype.name, "".join(f"{extent} " for extent in array.shape), *(row.tobytes().hex() for row in array)]


def check_numpy():
    sys.path.insert(0, str(HERE.parents[2] / ".deps/numpy"))
    try:
        import numpy
    except ImportError:
        print("skipped: no numpy")
        sys.exit(77)
    from numpy.lib import format as npy_format

    random = numpy.random.default_rng(7)
    types = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
             "longdouble", "complex64", "complex128", "clongdouble"]  # fmt: skip
    shapes = [(5,), (1,), (4, 3), (3, 1), (2, 3, 4)]
    arrays = {f"{name}_{'x'.join(map(str, shape))}": (random.random(shape) * 100).astype(name)
              for name in types for shape in shapes}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, array in arrays.items():
            numpy.save(folder / "a.npy", array)
            check(name, array_lines(array), "npy", folder / "a.npy")
        for version in [(1, 0), (2, 0), (3, 0)]:
            with open(folder / "a.npy", "wb") as file:
                npy_format.write_array(file, arrays["float32_4x3"], version=version)
            check(f"version {version}", array_lines(arrays["float32_4x3"]), "npy", folder / "a.npy")
        numpy.save(folder / "a.npy", numpy.zeros((70, 3))[::2, 1:])  # not contiguous: NumPy writes a copy
        check("a part of an array", array_lines(numpy.zeros((35, 2))), "npy", folder / "a.npy")

        numpy.savez(folder / "a.npz", **arrays)
        for name, array in arrays.items():
            check(f"{name} of an archive", array_lines(array), "npy", folder / "a.npz", name)
        numpy.savez(folder / "one.npz", arrays["int32_5"])
        check("the only one of an archive", array_lines(arrays["int32_5"]), "npy", folder / "one.npz")
        check_refused("several", "it has several arrays", "npy", folder / "a.npz")
        numpy.savez_compressed(folder / "packed.npz", x=numpy.zeros(1000))
        check_refused("compressed", "member x.npy is compressed (method 8)", "npy", folder / "packed.npz", "x")

        refused = {
            "in Fortran order": numpy.asfortranarray(arrays["float32_4x3"]),
            "big-endian": arrays["float32_4x3"].astype(">f4"),
            "which is no number": numpy.array(["a", "b"]),
            "Python objects": numpy.array([{}, None], dtype=object),
            "several fields": numpy.zeros(3, dtype=[("a", "<f4"), ("b", "<i4")]),
            "its shape is ()": numpy.float32(1),
            "its shape is (0, 3)": numpy.zeros((0, 3)),
        }
        for why, array in refused.items():
            numpy.save(folder / "a.npy", array, allow_pickle=True)
            check_refused(why, why, "npy", folder / "a.npy")
        check_refused("the file is named", "NpyFile: " + str(folder / "a.npy"), "npy", folder / "a.npy")
        numpy.save(folder / "a.npy", arrays["float32_4x3"])
        whole = (folder / "a.npy").read_bytes()
        for size in range(0, len(whole), 9):
            (folder / "a.npy").write_bytes(whole[:size])
            check_refused(f"{size} bytes", "a.npy: it", "npy", folder / "a.npy")
    print(f"{2 * len(arrays)} arrays of NumPy {numpy.__version__}")


# ---- TFRecord ---------------------------------------------------------------------------------------------------------


def example(i):
    """(name, kind, values) of the features of record i."""
    return [
        ("id", "int", [i]),
        ("ids", "int", [(-1) ** k * 3**k for k in range(i % 40)]),
        ("weights", "float", [k / 4 - i for k in range(i % 5)]),
        ("text", "byte", [b"text %d" % k * (i % 7) for k in range(1 + i % 3)]),
    ]


def record_lines(numbers):
    lines = []
    for i in numbers:
        lines.append("record")
        for name, kind, values in example(i):
            packed = {"int": "<q", "float": "<f"}
            lines += [name, *((struct.pack(packed[kind], value) if kind in packed else value).hex() for value in values)]
    return lines


def crc32c(data):
    """Bit by bit, by the definition of RFC 3720."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(value):
    value &= 2**64 - 1
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def message(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def serialised(i):
    """Record i, whose numbers are packed where i is even."""
    features = b""
    for name, kind, values in example(i):
        if kind == "byte":
            field = b"".join(message(1, value) for value in values)
        elif i % 2 == 0:
            field = message(1, b"".join(struct.pack("<f", v) if kind == "float" else varint(v) for v in values))
        else:
            field = b"".join(b"\x0d" + struct.pack("<f", v) if kind == "float" else b"\x08" + varint(v) for v in values)
        kinds = {"byte": 1, "float": 2, "int": 3}
        features += message(1, message(1, name.encode()) + message(2, message(kinds[kind], field)))
    return message(1, features)


def framed(data):
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def check_records():
    files = [WRITTEN / "examples-0.tfrecord", WRITTEN / "examples-1.tfrecord"]
    # The package puts the features into a map of Protocol Buffers, whose order is its own.
    done = run("tfrecord", *files)
    found, expected = split(done.stdout.splitlines()), split(record_lines(range(60)))
    if done.returncode != 0 or found != expected or len(found) != 60:
        wrong.append(f"records of the package tfrecord: {len(found)} {done.stderr.strip()}")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "own.tfrecord"
        path.write_bytes(b"".join(framed(serialised(i)) for i in range(40)))
        check("records of this script", record_lines(range(40)), "tfrecord", path)


def split(lines):
    """For each record, its features by name."""
    names, records = {name for name, _, _ in example(0)}, []
    for line in lines:
        if line == "record":
            records.append({})
        elif line in names:
            records[-1][line] = values = []
        else:
            values.append(line)
    return records


# ---- MDS --------------------------------------------------------------------------------------------------------------

COLUMNS = {"number": "int", "small": "uint8", "score": "float32", "text": "str", "blob": "bytes"}


def mds_sample(i):
    return {"number": i * 7 - 100, "small": i % 256, "score": i / 8, "text": "träumt " * (i % 6), "blob": bytes(range(i % 50))}


def mds_lines(count):
    encoded = {
        "int": lambda value: struct.pack("<q", value),
        "uint8": lambda value: struct.pack("<B", value),
        "float32": lambda value: struct.pack("<f", value),
        "str": str.encode,
        "bytes": bytes,
    }
    sizes = {"int": 8, "uint8": 1, "float32": 4}
    names = sorted(COLUMNS)  # MDSWriter sorts them.
    lines = [f"{name} {COLUMNS[name]} {sizes.get(COLUMNS[name], 0)}" for name in names]
    for i in range(count):
        lines += ["sample", *(encoded[COLUMNS[name]](mds_sample(i)[name]).hex() for name in names)]
    return lines


# ---- Files of the packages --------------------------------------------------------------------------------------------


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every package that is not installed."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = unittest.mock.MagicMock(name=spec.name)
        module.__path__, module.__spec__ = [], spec
        return module

    def exec_module(self, module):
        pass


def write():
    import numpy
    from tfrecord.writer import TFRecordWriter

    WRITTEN.mkdir(exist_ok=True)
    for part in range(2):
        writer = TFRecordWriter(str(WRITTEN / f"examples-{part}.tfrecord"))
        for i in range(30 * part, 30 * part + 30):
            writer.write({name: (values, kind) for name, kind, values in example(i)})
        writer.close()

    sys.meta_path.append(StandIns())
    for name in ["streaming", "streaming.base"]:  # What they import is for readers.
        module = types.ModuleType(name)
        module.__path__ = list(importlib.util.find_spec(name).submodule_search_locations)
        sys.modules[name] = module
    from streaming.base.format.mds.writer import MDSWriter

    with MDSWriter(out=str(WRITTEN / "mds"), columns=COLUMNS, compression=None, hashes=["sha1"], size_limit=4096) as out:
        for i in range(100):
            sample = mds_sample(i)
            out.write(sample | {"small": numpy.uint8(sample["small"]), "score": numpy.float32(sample["score"])})


if sys.argv[1:] == ["write"]:
    write()
    sys.exit()
_, part, TOOL = sys.argv
if part == "numpy":
    check_numpy()
else:
    check_records()
    check("samples of MDSWriter", mds_lines(100), "mds", WRITTEN / "mds")
if wrong:
    sys.exit("\n".join(wrong))
