#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""video_measure_test.py GPU_CHECK: scripts/gpu_check/video_measure.py with a program that is made up: both runs of a pair take
turns, the ratios are of pairs, a failure is told and is the exit status, and what has no time is said."""

import json
import pathlib
import subprocess
import sys
import tempfile

folder = pathlib.Path(sys.argv[1]).resolve()
PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
words = sys.argv[1:]
free = "--synthetic" in words
log = pathlib.Path(__file__).with_name("log")
runs = log.read_text().split() if log.exists() else []
log.write_text(" ".join([*runs, "free" if free else "videos" + words[-3] * ("--workers" in words)]))
if "FAILS" in words: sys.exit("it is broken")
speed = 200.0 if free else 100.0 + 10 * runs.count("videos")
found = {"images_per_second": speed, "step_ms": 1, "compute_ms": 2, "load_ms": 3, "idle": 0.5, "cpu_cores": 1.5,
         "first_batch_seconds": 0.25, "input_images_per_second": 0}
open(words[words.index("--json") + 1], "w").write(json.dumps(found))
"""


def require(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def measure(*words):
    """Runs the script with the program; returns how it ended, the order of the runs, and the results."""
    with tempfile.TemporaryDirectory() as scratch:
        program = pathlib.Path(scratch, "program")
        program.write_text(PROGRAM)
        program.chmod(0o755)
        done = subprocess.run([sys.executable, "-B", folder / "video_measure.py", "--program", program, "--videos", scratch,
                               "--plans", scratch, "--json", f"{scratch}/found.json", "--dry-run", *words],
                              capture_output=True, text=True)  # fmt: skip
        log, found = pathlib.Path(scratch, "log"), pathlib.Path(scratch, "found.json")
        return (done, log.read_text().split() if log.exists() else [],
                json.loads(found.read_text()) if found.exists() else {})  # fmt: skip


done, order, found = measure("--models", "resnet50")
require(done.returncode == 0 and order == ["free", "free", "videos", "free", "videos", "free", "videos"], (done, order))
require("resnet50: videos / synthetic 0.550 (the pairs: 0.500, 0.550, 0.600)" in done.stdout, done.stdout)
require(found["resnet50 videos 3"]["images_per_second"] == 120 and len(found) == 7, found)

done, order, _ = measure("--models", "resnet18,resnet50", "--pairs", "1", "--", "--workers", "7")
require(order == ["free", "free", "videos7"] * 2, order)

done, order, _ = measure("--models", "resnet18", "--pairs", "1", "--", "FAILS")
require(done.returncode == 1 and "it is broken" in done.stdout and "videos / synthetic" not in done.stdout, done)

done, order, found = measure("--seconds", "0")
require(done.returncode == 0 and order == [] and "There was no time for: resnet50 plans" in done.stdout, done)

done, order, _ = measure("--models", "resnet9")
require(done.returncode == 2 and "there is no resnet9" in done.stderr, done)
print("passed")
