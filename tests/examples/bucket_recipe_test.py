#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The recipe from_a_bucket against a server of the test's own: bucket_recipe_test.py PROGRAM"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from object_server import Handler, environment, serving

CLASSES, FILES, EPOCHS = 3, 32, 2


def has_gpu():
    if not shutil.which("nvidia-smi"):
        return False
    return "GPU" in subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout


def run(folder, **variables):
    done = subprocess.run([sys.argv[1]], cwd=folder, env={**environment(server), **variables}, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


if os.environ.get("NEEDS_GPU") and not has_gpu():
    print("skipped: no GPU")
    sys.exit(77)
with tempfile.TemporaryDirectory() as scratch, serving(pathlib.Path(scratch) / "objects") as server:
    for number in range(CLASSES):
        directory = pathlib.Path(scratch, "objects", "train", f"class_{number}")
        directory.mkdir(parents=True)
        for i in range(FILES):
            (directory / f"{i:03}.rgb").write_bytes(bytes([number]) * (32 * 32 * 3))
    status, told = run(scratch, BUCKET_FOLDER="s3://bucket/train/")
    samples = CLASSES * FILES * EPOCHS
    assert status == 0 and f"from_a_bucket: {samples} of {samples} samples are right" in told, told
    assert Handler.lists == 1 and samples <= Handler.gets <= 1.1 * samples, (Handler.lists, Handler.gets)  # with hedges
    status, told = run(scratch, BUCKET_FOLDER="s3://bucket/train/")
    assert status == 0 and Handler.lists == 1, told  # The list is still there.
    (directory / "000.rgb").write_bytes(b"short")
    status, told = run(scratch, BUCKET_FOLDER="s3://bucket/train/")
    assert status == 0, told  # Another sample takes its place.
    assert run(scratch)[0] == 2
    print(told)
