#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
ladder_measure.py --programs DIRECTORY --data DIRECTORY --plans DIRECTORY --store FILE [--start FILE] [--models M,M]
                  [--rungs T1,T14] [--images DIRECTORY] [--seconds N] [--left FILE] [--dry-run]

Measures the training ladder for examples/resnet/README.md: each rung three times, and PyTorch's rungs in the same call.
The results go to the store, row by row, from which ladder_table.py makes table and picture.

What is worth most comes first: the ends of the ladder, PyTorch's best, then the fast rungs. When the N seconds are
over, what is left is said, and written to the file LEFT; the same command goes on with it. A row of the store that is
of this machine, driver and commit is not measured again. --start: a store to begin from, where there is none yet, or
with rows that the store lacks. --images: JPEG files for T15 and T16, which are left out without them.

The commit is PENSTOCK_COMMIT's where it is set, else git's. --dry-run tries it without a GPU: emulated
programs, tiny images, and PyTorch on the CPU if Python has it. Exit status 1 when a rung failed.
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import ladder_table  # It keeps Python from writing bytecode beside the sources.

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPEAT = 3
LARGE = {"resnet18": 512, "resnet50": 256}  # the batch of T10 and all behind it
SMALL = 32

# (side, rung): the first ones are measured where there is little time.
ORDER = [("penstock", "T14"), ("pytorch", "best"), ("penstock", "T1"), ("pytorch", "T1"), ("penstock", "T12"),
         ("penstock", "T15"), ("penstock", "T16"), ("penstock", "T11"), ("pytorch", "T11"), ("penstock", "T10"), ("pytorch", "T10"), ("penstock", "T9"),
         ("pytorch", "T9"), ("penstock", "T8"), ("pytorch", "T8"), ("penstock", "T7"), ("pytorch", "T7"),
         ("penstock", "T6"), ("pytorch", "T6"), ("penstock", "T5"), ("pytorch", "T5"), ("penstock", "T4"),
         ("pytorch", "T4"), ("penstock", "T3"), ("pytorch", "T3"), ("penstock", "T2"), ("pytorch", "T2"),
         ("pytorch", "max-autotune")]  # fmt: skip

IMAGES = ("T15", "T16")  # from JPEG files

# Seconds: without so many left it is not begun; and the most it may take. A compiled rung of PyTorch compiles.
NEEDS = {"penstock": 25, "pytorch": 30, "compiled": 60, "max-autotune": 60}
LIMIT = {"penstock": 100, "pytorch": 90, "compiled": 150, "max-autotune": 300}


def output_of(*command):
    try:
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit():
    """PENSTOCK_COMMIT, or git's: short, with a + behind it where the sources have been changed since."""
    if os.environ.get("PENSTOCK_COMMIT"):
        return os.environ["PENSTOCK_COMMIT"]
    found = output_of("git", "rev-parse", "--short", "HEAD")
    if not found:
        return ""
    return found + ("+" if output_of("git", "status", "--porcelain", "--untracked-files=no") else "")


def machine(dry_run):
    """What a row says of where it was measured."""
    gpu = "" if dry_run else output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    name, _, driver = gpu.partition("\n")[0].partition(", ")
    return {"machine": name or "no GPU: dry run", "driver": driver, "cores": len(os.sched_getaffinity(0)),
            "commit": commit()}  # fmt: skip


def kind(side, rung):
    if side == "penstock" or rung == "max-autotune":
        return rung if rung == "max-autotune" else side
    return "compiled" if rung == "best" or int(rung[1:]) >= 7 else side


def is_large(rung):
    return not rung.startswith("T") or int(rung[1:]) >= 10


def sizes(model, rung, option):
    """Steps are so many that a run takes a second or more."""
    if option.dry_run:
        return {"batch": 4, "steps": 2, "warmup": 1, "image_size": 32, "workers": 2}
    large = is_large(rung)
    return {"batch": LARGE[model] if large else SMALL, "steps": 60 if large else 100, "warmup": 10, "image_size": 224,
            "workers": max(1, min(14, len(os.sched_getaffinity(0)) - 2))}  # fmt: skip


def measure_ours(model, rung, size, limit, option):
    ladder = ladder_table.ladder()
    name = next(name for name in [*ladder.RUNGS, *ladder.IMAGE_RUNGS] if rung == f"T{int(name[:2])}")
    how = "guessed" if int(rung[1:]) < 6 else "timed"
    program = option.programs.resolve() / (name + ("_emulated" if option.dry_run else ""))
    if not program.exists():
        return {"failed": f"there is no {program}"}
    data = ["--images", str(option.images)] if rung in IMAGES else ["--data", str(option.data)]
    if rung == "T16":
        size = {**size, "workers": 2}  # The engines decode.
    arguments = ["--model", "resnet8" if option.dry_run else model, *data, "--plans",
                 str(option.plans / f"ladder-plans-{model}-{how}")]  # fmt: skip
    for key in ("batch", "steps", "warmup", "image_size", "workers"):
        arguments += [f"--{key.replace('_', '-')}", str(size[key])]
    result = ladder.run_rung([program], arguments, REPEAT, os.environ, limit)
    if result is None:
        return {"failed": "see the log"}
    losses = [loss for loss in result["losses"] if loss is not None]
    return {"name": result["name"], "change": result["change"], "with": result["operations"],
            "precision": result["precision"], "images_per_second": result["images_per_second"],
            "all": result["all_images_per_second"], "load_ms": result["load_ms"], "copy_ms": result["copy_ms"],
            "compute_ms": result["compute_ms"], "idle": result["idle"], "skipped_steps": result["skipped_steps"],
            "first_loss": losses[0], "last_loss": losses[-1]}  # fmt: skip


def measure_pytorch(model, rung, size, limit, option):
    size = {**size, "steps": size["steps"] if option.dry_run or not is_large(rung) or rung in ("best", "max-autotune")
            else 20}  # fmt: skip  # Its loader's workers are what such a step waits for.
    with tempfile.TemporaryDirectory() as scratch:
        result = pathlib.Path(scratch, "result.json")
        command = [sys.executable, str(ROOT / "benchmarks/peers/pytorch_ladder.py"), "--data", str(option.data),
                   "--model", model, "--only", "best" if rung == "max-autotune" else rung, "--repeat", str(REPEAT),
                   "--compile", rung if rung == "max-autotune" else "default", "--limit", str(limit),
                   "--batch", str(size["batch"]), "--large-batch", str(size["batch"]), "--json", str(result),
                   "--device", "cpu" if option.dry_run else "cuda"]  # fmt: skip
        for key in ("steps", "warmup", "image_size", "workers"):
            command += [f"--{key.replace('_', '-')}", str(size[key])]
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(option.plans / "inductor")}
        subprocess.run(command, env=environment, stdout=subprocess.PIPE)
        if not result.exists():
            return {"failed": "see the log"}
        found = json.loads(result.read_text())[0]
    if "failed" in found:
        return {"failed": found["failed"]}
    return {"with": found["with"], "images_per_second": found["images_per_second"], "all": found["all"],
            "steps": size["steps"], "last_loss": found["loss"]}  # fmt: skip


def measure(model, side, rung, limit, where, option):
    size = sizes(model, rung, option)
    row = {"side": side, "model": model, "rung": rung, **where, "date": f"{datetime.date.today()}", "repeat": REPEAT,
           **size}  # fmt: skip
    row.update((measure_ours if side == "penstock" else measure_pytorch)(model, rung, size, limit, option))
    return row


def has_torch():
    return importlib.util.find_spec("torch") is not None


def wanted(option, rows, where):
    """(model, side, rung) of what is to be measured, in its order."""
    torch = has_torch()
    done = {ladder_table.key(row) for row in rows if {**row, **where} == row}
    for model in option.models:
        for side, rung in ORDER:
            if (model, side, rung) in done or (side == "pytorch" and not torch) or (rung in IMAGES and not option.images):
                continue
            if not option.rungs or rung in option.rungs:
                yield model, side, rung


def say(row):
    name = f"{row['model']:9} {row['side']:9} {row['rung']:13}"
    print(name + (row["failed"] if "failed" in row else f"{row['images_per_second']:10.1f} images/s"), flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--plans", type=pathlib.Path, required=True)
    parser.add_argument("--store", type=pathlib.Path, required=True)
    parser.add_argument("--start", type=pathlib.Path)
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(LARGE))
    parser.add_argument("--rungs", type=lambda text: text.split(","))
    parser.add_argument("--images", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--left", type=pathlib.Path)
    parser.add_argument("--dry-run", action="store_true")
    option = parser.parse_args()
    where = machine(option.dry_run)
    if not where["commit"]:
        sys.exit("ladder_measure.py: which commit is it? There is no git here: set PENSTOCK_COMMIT")
    end = time.monotonic() + option.seconds
    rows = ladder_table.merge(*(ladder_table.load(path) for path in (option.start, option.store) if path))
    tasks, failed = list(wanted(option, rows, where)), False
    if not has_torch():
        print("PyTorch is missing: nothing is measured beside it", flush=True)
        failed = not option.dry_run
    while tasks:
        model, side, rung = tasks[0]
        left = end - time.monotonic()
        if left < NEEDS[kind(side, rung)]:
            break
        row = measure(model, side, rung, min(left - 5, LIMIT[kind(side, rung)]), where, option)
        say(row)
        tasks.pop(0)
        if "failed" in row and rung != "max-autotune":  # That one need not end; the table says so.
            failed = True
            continue
        rows = ladder_table.merge(rows, [row])
        ladder_table.save(option.store, rows)
    if tasks and option.left:
        models = dict.fromkeys(model for model, _, _ in tasks)
        option.left.write_text("".join(
            f"ladder-table={model}  ({', '.join(f'{side} {rung}' for of, side, rung in tasks if of == model)})\n"
            for model in models))  # fmt: skip
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
