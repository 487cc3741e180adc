#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ladder_test.py LADDER PROGRAMS

Runs the ladder on the emulated runtime and checks what has to be equal: every rung trains on the same
images in the same order, so all have the same losses, bit for bit.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

ladder, programs = sys.argv[1:]
with tempfile.TemporaryDirectory() as scratch:
    done = subprocess.run(
        [sys.executable, ladder, "--quick", "--programs", programs, "--out", scratch, "--",
         "--batch", "4", "--steps", "3", "--warmup", "1", "--records", "20", "--cache", scratch],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    print(done.stdout)
    if done.returncode != 0:
        sys.exit("the ladder failed")
    results = json.loads(pathlib.Path(scratch, "ladder.json").read_text())

losses = {result["name"]: result["losses"] for result in results}
first = losses["baseline"]
wrong = [name for name, mine in losses.items() if mine != first]
if len(losses) != 13 or len(first) != 4 or len(set(first)) < 4:
    sys.exit(f"{len(losses)} rungs, losses of the first: {first}")
if wrong:
    sys.exit(f"other losses than the baseline's: {', '.join(wrong)}")
for result in results:
    if not (result["emulated"] and result["images_per_second"] > 0 and result["compute_ms"] > 0):
        sys.exit(f"not a result: {result}")
print(f"{len(losses)} rungs have the same losses: {first}")
