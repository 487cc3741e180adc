#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""images_measure_test.py GPU_CHECK: the table of scripts/gpu_check/images_measure.py, of programs and peers that are made up:
each stands beside its own ceiling, a failure is told and is the exit status, and what has no time is said."""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile

folder = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(folder))
import images_measure

RUNG = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
assert len({word for word in words if word.startswith("--")}) == len([word for word in words if word.startswith("--")]), words
free = "--synthetic" in words
found = {"images_per_second": 200.0 if free else 150.0, "step_ms": 1, "compute_ms": 2, "load_ms": 3, "idle": 0,
         "cpu_cores": 1.5, "first_batch_seconds": 0.25,
         "input_images_per_second": 777 if "--input-apart" in words else 0}
if FAILS in words: sys.exit("it is broken")
open(words[words.index("--json") + 1], "w").write(json.dumps(found))
"""
LOADER = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
assert len({word for word in words if word.startswith("--")}) == len([word for word in words if word.startswith("--")]), words
open(words[words.index("--json") + 1], "w").write(json.dumps({"images_per_second": 300.0, "cpu_cores": 2}))
"""


def require(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def line_of(text, name):
    return next((line.split(name, 1)[1].split() for line in text.splitlines()[::-1] if line.startswith(name + "  ")), None)


def ours(scratch, fails, *more):
    programs = scratch / "examples/resnet/train"
    for name in ("15_images", "16_hardware_decoder"):
        program(programs / f"{name}_emulated", RUNG.replace("FAILS", repr(fails)))
    program(scratch / "examples/images/image_loader_emulated", LOADER)
    # Without PyTorch, wherever this runs.
    return subprocess.run([sys.executable, "-B", "-S", folder / "images_measure.py", "--programs", programs, "--images", scratch,
                           "--small", scratch, "--plans", scratch, "--json", scratch / "found.json", "--dry-run", *more],
                          capture_output=True, text=True)  # fmt: skip


def without_peers(scratch):
    done = ours(scratch, "none")
    require(done.returncode == 0 and "ours alone" in done.stdout, done)
    require(line_of(done.stdout, "resnet18 engines") == ["150.0", "0.750", "2.00", "1.50", "0.25"], done.stdout)
    require(line_of(done.stdout, "resnet18 input apart")[-1] == "777", done.stdout)
    require(line_of(done.stdout, "loader engines") == ["300.0", "2.00"], done.stdout)
    found = json.loads((scratch / "found.json").read_text())
    require([row[0] for row in images_measure.OURS] == list(found), list(found))


def failures(scratch):
    done = ours(scratch, "--input-apart")
    require(done.returncode == 1 and "it is broken" in done.stdout, done)
    require(line_of(done.stdout, "resnet18 engines") is not None, done.stdout)


def no_time(scratch):
    done = ours(scratch, "none", "--seconds", "0.5")
    require(done.returncode == 0, done)
    require("There was no time for: resnet18 free" in done.stdout, done.stdout)


def lengths():
    """A row's own length is the one that counts, and its other options stay."""
    class Real:
        dry_run = False
    class Dry:
        dry_run = True
    usual = {"--steps": "60", "--warmup": "15"}
    row = ["--cpu-share", "auto", "--steps", "400", "--input-apart"]
    found = images_measure.with_length(row, usual, Real)
    require(found == ["--cpu-share", "auto", "--input-apart", "--steps", "400", "--warmup", "15"], found)
    found = images_measure.with_length(row, {"--steps": "2"}, Dry)
    require(found == ["--cpu-share", "auto", "--input-apart", "--steps", "2"], found)


def peers():
    """DALI's row has its own ceiling, PyTorch's that of PyTorch."""
    rows = {"resnet18 free": {"images_per_second": 200}, "DALI resnet18": {"images_per_second": 90, "free_images_per_second": 100,
            "cpu_cores": 6}, "DALI loader": {"images_per_second": 250, "cpu_cores": 6.125},
            "PyTorch resnet18": {"images_per_second": 30}, "PyTorch resnet18-free": {"images_per_second": 120},
            "PyTorch resnet50": {"images_per_second": 3}}  # fmt: skip
    text = images_measure.table(rows)
    for name, expected in (("DALI resnet18", ["90.0", "0.900", "6.00"]), ("PyTorch resnet18", ["30.0", "0.250"]),
                           ("DALI loader", ["250.0", "6.12"]), ("PyTorch resnet50", ["3.0"])):  # fmt: skip
        require(line_of(text, name) == expected, f"{name}: {text}")


def order(packages):
    """The peers are measured beside ours, and each once."""
    images_measure.has_package = lambda name: name in packages
    with contextlib.redirect_stdout(io.StringIO()) as told:
        names = [job[0] for job in images_measure.jobs(None)]
    require(len(set(names)) == len(names), names)
    require({row[0] for row in images_measure.OURS} <= set(names), names)
    require(("DALI loader" in names) == ("nvidia.dali" in packages and "torch" in packages), names)
    require(("PyTorch resnet18" in names) == ("torch" in packages), names)
    require(("scripts/setup dali" in told.getvalue()) == ("torch" in packages and "nvidia.dali" not in packages),
            told.getvalue())  # fmt: skip


for case in (without_peers, failures, no_time):
    with tempfile.TemporaryDirectory() as scratch:
        case(pathlib.Path(scratch))
lengths()
peers()
for packages in ((), ("nvidia.dali",), ("torch", "torchvision"), ("torch", "torchvision", "nvidia.dali")):
    order(packages)
print("passed")
