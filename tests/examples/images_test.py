#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/images over a folder and over shards, on this machine and at a server, with a broken file, and with none.

Use: images_test.py IMAGES MAKE_IMAGES ON|OFF, whether penstock::remote is built
"""
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from object_server import Handler, environment, serving

IMAGES, MAKE = sys.argv[1:3]
HAS_REMOTE = sys.argv[3] == "ON"


def run(*command, status=0, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == status, (command, done)
    return done.stdout + done.stderr


def urls(folder, shards):
    """Folders are listed the first time; a list beside a folder needs no listing."""
    if not HAS_REMOTE:
        assert "built without penstock::remote" in run(IMAGES, "s3://bucket/folder/train/", status=2)
        return
    with serving(folder.parent) as server:
        env = environment(server, folder.parent / "home")
        (folder.parent / "home").mkdir()
        for listed in ("files, listed in", "remove it to list the folder anew"):
            told = run(IMAGES, "s3://bucket/folder/train/", env=env)
            assert "100 images\n" in told and listed in told, told
        assert Handler.lists == 1, Handler.lists
        (kept,) = folder.parent.glob("home/.cache/penstock/lists/*.list")
        kept.rename(folder / "train.list")
        assert run(IMAGES, f"{server}/bucket/folder/train/", env=env).startswith("100 images\n")
        assert Handler.lists == 1, Handler.lists
        tars = [f"s3://bucket/shards/{tar.name}" for tar in sorted(shards.glob("*.tar"))]
        assert run(IMAGES, *tars, env=env).startswith("100 images\n")
        assert "none/: there are no image files" in run(IMAGES, "s3://bucket/none/", env=env, status=2)
        assert "none.pack: HTTP 404" in run(IMAGES, "s3://bucket/none.pack", env=env, status=1)


with tempfile.TemporaryDirectory() as scratch:
    folder, shards = pathlib.Path(scratch, "folder"), pathlib.Path(scratch, "shards")
    run(MAKE, "--out", folder, "--train", 100, "--val", 0)
    run(MAKE, "--out", shards, "--train", 100, "--val", 0, "--shards-of", 40)
    assert run(IMAGES, folder / "train").startswith("100 images\n")
    assert run(IMAGES, *sorted(shards.glob("*.tar"))).startswith("100 images\n")
    urls(folder, shards)
    broken = sorted(folder.glob("train/*/*"))[42]
    broken.write_bytes(b"no image")
    said = run(IMAGES, folder / "train").splitlines()
    assert said[0].count(broken.name) == 1 and said[1] == "100 images", said
    assert "none" in run(IMAGES, folder / "none", status=1)
    assert "FOLDER" in run(IMAGES, status=2)
    assert "must be tar shards" in run(IMAGES, folder / "train", folder / "train", status=2)
    with open("/dev/full", "w") as full:
        lost = subprocess.run([IMAGES, folder / "train"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert lost.returncode == 1 and "output cannot be written" in lost.stderr, lost
    for path in folder.glob("train/*/*"):
        path.write_bytes(b"no image")
    said = run(IMAGES, folder / "train", status=1)  # more than are replaced
    assert "train_000" in said and ".JPEG: " in said, said
print("passed")
