#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_images from outside: what it writes, twice the same, and what it refuses.

Use: make_images_test.py PROGRAM
"""
import filecmp
import pathlib
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time

PROGRAM = sys.argv[1]
SMALL = ["--width", "64", "--height", "48"]


def run(*options):
    return subprocess.run([PROGRAM, *map(str, options)], capture_output=True, text=True, timeout=300)


def make(out, *options):
    result = run("--out", out, *options)
    assert result.returncode == 0, result.stderr
    return out


def files_of(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def frame(data):
    """Marker of the frame, height, width, components, and EXIF's orientation, of a JPEG file."""
    at, orientation = 2, 1
    while True:
        marker, length = struct.unpack(">HH", data[at:at + 4])
        if marker == 0xFFE1:
            assert data[at + 4:at + 10] == b"Exif\0\0"
            orientation = data[at + 28]
        if marker in (0xFFC0, 0xFFC2):
            height, width, components = struct.unpack(">xHHB", data[at + 4:at + 10])
            return marker, height, width, components, orientation
        at += 2 + length


def test_folders(scratch):
    one = make(scratch / "one", "--train", 30, "--val", 10, *SMALL)
    names = files_of(one)
    assert len(names) == 41, names
    classes = (one / "classes.txt").read_text().split()
    assert len(classes) == 10 and classes[0] == "disc"
    for label, name in enumerate(classes):
        assert len(list((one / "train" / name).iterdir())) == 3
        assert (one / "val" / name / f"val_{label:08}.JPEG").stat().st_size > 500
    two = make(scratch / "two", "--train", 30, "--val", 10, *SMALL)
    assert files_of(two) == names
    assert all(filecmp.cmp(one / name, two / name, shallow=False) for name in names)
    other = make(scratch / "other", "--train", 30, "--val", 10, "--seed", 2, *SMALL)
    assert not any(filecmp.cmp(one / name, other / name, shallow=False) for name in names[1:])
    assert [path.name for path in scratch.iterdir() if "partial" in path.name] == []


def test_shards(scratch):
    folder = make(scratch / "folder", "--train", 50, "--val", 0, "--classes", 25, *SMALL)
    shards = make(scratch / "shards", "--train", 50, "--val", 0, "--classes", 25, "--shards-of", 20, *SMALL)
    classes = (shards / "classes.txt").read_text().split()
    assert len(set(classes)) == 25, classes
    seen = 0
    for number, size in enumerate((20, 20, 10)):
        with tarfile.open(shards / f"train-{number:06}.tar") as tar:
            members = tar.getmembers()
            assert len(members) == 2 * size
            for picture, label in zip(members[::2], members[1::2]):
                stem = picture.name.removesuffix(".jpg")
                assert label.name == stem + ".cls"
                name = classes[int(tar.extractfile(label).read())]
                want = (folder / "train" / name / f"{stem}.JPEG").read_bytes()
                assert tar.extractfile(picture).read() == want
                seen += 1
    assert seen == 50


def test_formats(scratch):
    everything = make(scratch / "everything", "--train", 600, "--val", 0, "--width", 40, "--height", 24)
    frames = [frame(path.read_bytes()) for path in (everything / "train").rglob("*.JPEG")]
    assert len(frames) == 600
    assert any(marker == 0xFFC2 for marker, *_ in frames)
    assert {components for *_, components, _ in frames} == {1, 3, 4}
    assert {orientation for *_, orientation in frames} == {1, 3, 6, 8}
    for _, height, width, _, orientation in frames:
        assert (height, width) == ((40, 24) if orientation in (6, 8) else (24, 40))
    plain = make(scratch / "plain", "--train", 600, "--val", 0, "--width", 40, "--height", 24, "--plain")
    assert {frame(path.read_bytes()) for path in (plain / "train").rglob("*.JPEG")} == {(0xFFC0, 24, 40, 3, 1)}
    sizes = make(scratch / "sizes", "--train", 60, "--val", 0)
    shapes = [frame(path.read_bytes())[1:3] for path in (sizes / "train").rglob("*.JPEG")]
    assert 15 <= shapes.count((375, 500)) <= 45, shapes
    assert len(set(shapes)) > 10


def test_ppm(scratch):
    raw = make(scratch / "raw", "--train", 3, "--val", 0, "--ppm", *SMALL)
    file = (raw / "train/disc/train_00000000.ppm").read_bytes()
    header = b"P6\n64 48\n255\n"
    assert file.startswith(header) and len(file) == len(header) + 64 * 48 * 3
    assert len(set(file[len(header):])) > 100
    shards = make(scratch / "shards", "--train", 3, "--val", 0, "--ppm", "--shards-of", 3, *SMALL)
    with tarfile.open(shards / "train-000000.tar") as tar:
        assert tar.extractfile("train_00000000.ppm").read() == file


def test_refusals(scratch):
    result = run("--out", scratch, "--train", 1)
    assert result.returncode == 1 and "exists" in result.stderr, result
    assert list(scratch.iterdir()) == []
    for wrong in (["--width", "5"], ["--classes", "0"], ["--classes", "1001"], ["--train", "0", "--val", "0"]):
        result = run("--out", scratch / "none", *wrong)
        assert result.returncode == 2, (wrong, result)
    result = run("--out", scratch / "none", "--width", 65500, "--height", 65500)
    assert result.returncode == 2 and "178956970 pixels at most" in result.stderr, result
    result = run("--out", "", "--train", 1)
    assert result.returncode == 2 and "--out: the value is empty" in result.stderr, result
    result = run("--out", "/proc/none/here", "--train", 1)
    assert result.returncode == 1 and "/proc/none" in result.stderr, result


def test_interrupt(scratch):
    process = subprocess.Popen([PROGRAM, "--out", scratch / "long", "--train", "1000000"],
                               stderr=subprocess.DEVNULL)
    while not list(scratch.rglob("*.JPEG")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert list(scratch.iterdir()) == []


def main():
    for test in (test_folders, test_shards, test_formats, test_ppm, test_refusals, test_interrupt):
        with tempfile.TemporaryDirectory() as scratch:
            test(pathlib.Path(scratch))
        print(f"{test.__name__}: passed", flush=True)


main()
