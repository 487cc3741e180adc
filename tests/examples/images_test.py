#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/images over a folder and over shards, with a broken file, and with none.

Use: images_test.py IMAGES MAKE_IMAGES
"""
import pathlib
import subprocess
import sys
import tempfile

IMAGES, MAKE = sys.argv[1:]


def run(*command, status=0):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, (command, done)
    return done.stdout + done.stderr


with tempfile.TemporaryDirectory() as scratch:
    folder, shards = pathlib.Path(scratch, "folder"), pathlib.Path(scratch, "shards")
    run(MAKE, "--out", folder, "--train", 100, "--val", 0)
    run(MAKE, "--out", shards, "--train", 100, "--val", 0, "--shards-of", 40)
    assert run(IMAGES, folder / "train").startswith("100 images\n")
    assert run(IMAGES, *sorted(shards.glob("*.tar"))).startswith("100 images\n")
    broken = sorted(folder.glob("train/*/*"))[42]
    broken.write_bytes(b"no image")
    said = run(IMAGES, folder / "train").splitlines()
    assert said[0].count(broken.name) == 1 and said[1] == "100 images", said
    assert "none" in run(IMAGES, folder / "none", status=1)
    assert "FOLDER" in run(IMAGES, status=2)
    assert "FOLDER" in run(IMAGES, folder / "train", folder / "train", status=2)
    with open("/dev/full", "w") as full:
        lost = subprocess.run([IMAGES, folder / "train"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert lost.returncode == 1 and "output cannot be written" in lost.stderr, lost
    for path in folder.glob("train/*/*"):
        path.write_bytes(b"no image")
    said = run(IMAGES, folder / "train", status=1)  # more than are replaced
    assert "train_000" in said and ".JPEG: " in said, said
print("passed")
