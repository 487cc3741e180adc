#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/libtorch learns, and counts every image once in each epoch.

Use: libtorch_test.py LIBTORCH MAKE_IMAGES. Exit status 77 where NEEDS_GPU is set and there is no GPU.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM, MAKE = sys.argv[1:]


def run(*command, status=0):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, (command, done)
    return done.stdout + done.stderr


if os.environ.get("NEEDS_GPU") and (shutil.which("nvidia-smi") is None or "GPU" not in run("nvidia-smi", "-L")):
    print("skipped: no GPU")
    sys.exit(77)
with tempfile.TemporaryDirectory() as scratch:
    run(MAKE, "--out", f"{scratch}/data", "--train", 300, "--val", 0, "--classes", 3, "--plain", "--width", 60, "--height", 60)
    epochs = re.findall(r"epoch (\d): (\d+) images, loss ([\d.]+)\n", run(PROGRAM, f"{scratch}/data/train"))
    print(epochs)
    assert [(int(epoch), int(images)) for epoch, images, _ in epochs] == [(i, 300) for i in range(1, 6)], epochs
    assert float(epochs[-1][2]) < 0.8 * float(epochs[0][2]), epochs
    assert "none" in run(PROGRAM, f"{scratch}/none", status=1)
    assert "FOLDER" in run(PROGRAM, status=2)
print("passed")
