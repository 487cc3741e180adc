#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""traced_test.py CASE LADDER PROGRAMS PENSTOCK_TRACE MAKE_IMAGES: what penstock-trace says of the rungs of a ladder (train
or infer), with the emulated programs in the folder PROGRAMS; a case is one of the functions below."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ladder = sys.argv[2]
programs, trace, make_images = (pathlib.Path(word).resolve() for word in sys.argv[3:6])
ALLOCATING = {"train": ("00", "01", "02", "03", "03b", "04", "04b"), "infer": ("01",)}[ladder]
COUNT = {"train": 25, "infer": 14}[ladder]
SMALL = ["--model", "resnet8", "--image-size", "16", "--steps", "20", "--workers", "2"]
SIZES = {"train": ["--batch", "16", "--warmup", "3"], "infer": ["--batches", "16", "--warmup", "6"]}[ladder]
RECORDS = ["--records", "400", "--cache", "."]


def require(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def traced(program, data, schedule="eager", status=0):
    command = [trace, "--capture-range", "--quiet", "--fail-on", "allocation", "--out", "trace", "--", program, *SMALL, *SIZES, *data]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
                          env={**os.environ, "PENSTOCK_EMULATION": f"schedule={schedule}"})  # fmt: skip
    require(done.returncode == status, f"{program.name} ({schedule}): exit status {done.returncode}, not {status}\n{done.stdout}")


def allocation():
    """Nothing is allocated in a step; --fail-on finds the rungs that do, so that the test could fail."""
    subprocess.run([make_images, "--out", "jpegs", "--train", "64", "--val", "0", "--plain", "--width", "100", "--height", "75"],
                   check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    found = sorted(programs.glob("[0-9][0-9]*_emulated"))
    require(len(found) == COUNT, f"{len(found)} rungs in {programs}")
    for program in found:
        number = program.name.split("_")[0]
        reads_images = ladder == "train" and number in ("15", "16")
        for schedule in ("eager", "lazy"):
            traced(program, ["--images", "jpegs"] if reads_images else RECORDS, schedule, 3 if number in ALLOCATING else 0)
    print(f"{COUNT - len(ALLOCATING)} rungs allocate nothing in a step, {len(ALLOCATING)} do")


def names():
    """Every kernel has a name of its own before its arguments."""
    rungs = {"train": ("05_readback", "14_records_and_graph"), "infer": ("04a_half", "07_graph")}[ladder]
    for name in rungs:
        traced(programs / f"{name}_emulated", RECORDS)
        kernels = [row["name"].split("<")[0] for row in json.loads(pathlib.Path("trace/report.json").read_text())["kernels"]]
        require(len(kernels) >= 4 and len(set(kernels)) == len(kernels), f"{name}: {kernels}")
        require(any(kernel.endswith("kernel::convolution") or kernel.endswith("convolution_statistics") for kernel in kernels), kernels)


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    globals()[sys.argv[1]]()
