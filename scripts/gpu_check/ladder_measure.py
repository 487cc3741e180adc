#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
ladder_measure.py --programs DIRECTORY --data DIRECTORY --plans DIRECTORY --store FILE [--start FILE] [--models M,M]
                  [--rungs T1,I7] [--images DIRECTORY] [--seconds N] [--left FILE] [--peers] [--dry-run]

Measures both ladders of examples/resnet: each rung of the training ladder for every model, each rung of the inference
ladder for ResNet-18, and some rungs under settings that show their lesson (SETTINGS). All of them run once, then a second
and a third time. Each result is a row of the store, from which ladder_table.py makes tables and a picture. Rows of another
machine, driver or commit leave the store.

--peers measures PyTorch's training ladder, and ours beside it in the same call, each rung three times. The most important
rungs come first. These rows have a store of their own, which keeps rows of other commits.

After N seconds it says what is left, and writes that to the file LEFT. The same command continues there. --start has rows
that the store lacks. --programs is the folder examples/resnet of a build. --images has JPEG files; without it the rungs that
read them are left out.

The commit is PENSTOCK_COMMIT's if that is set, else git's. --dry-run tries everything without a GPU: with emulated programs,
tiny images, and PyTorch on the CPU if Python has it. The exit status is 1 if a rung failed.
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
ROUNDS = 3
LARGE = {"resnet18": 512, "resnet50": 256}  # the batch of T10 and all behind it
SMALL = 32
INFERENCE_MODEL, INFERENCE_BATCH = "resnet18", 128

# By name: the rungs, and what differs from the ladder's own sizes. All are of INFERENCE_MODEL, or as they say.
SETTINGS = {
    "batch 64": (["T0", "T1"], {"batch": 64}),
    "JPEG files": (["T1", "T2"], {"images": True}),
    "32 x 32": (["T3b", "T4", "T4b", "T4c", "T5", "T14b", "T14"], {"batch": 32, "image_size": 32, "steps": 200}),
    "loading for free": (["I3b", "I4", "I5a", "I5b", "I6", "I7", "I8", "I8u"], {"free_loading": True, "workers": 4}),
    "8 images": (["I1", "I2", "I5b", "I6", "I7", "I8"], {"batch": 8, "free_loading": True, "workers": 4, "steps": 400}),
    "batches of 32, 32 x 32": (["T4", "T4b", "T4c", "T5", "T14b", "T14"],
                               {"model": "resnet8", "batch": 32, "image_size": 32, "steps": 1000}),
    "1 image": (["I1", "I2", "I5b", "I6", "I7", "I8"], {"batch": 1, "free_loading": True, "workers": 4, "steps": 1000}),
    "1 image, 32 x 32": (["I1", "I2", "I5b", "I6", "I7"],
                         {"model": "resnet8", "batch": 1, "image_size": 32, "free_loading": True, "workers": 4, "steps": 2000}),
}  # fmt: skip

# With --peers: (side, rung): the first ones are measured where there is little time.
PEERS = [("penstock", "T14"), ("pytorch", "best"), *((side, f"T{number}") for number in (1, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2)
         for side in ("penstock", "pytorch")), ("pytorch", "max-autotune")]  # fmt: skip

IMAGES = ("T15", "T16")  # from JPEG files
SLOW = ("T7b",)  # It times every plan: measured last, and once.

# Seconds: without so many left it is not begun; and the most it may take. A compiled rung of PyTorch compiles.
NEEDS = {"penstock": 12, "pytorch": 30, "compiled": 60, "max-autotune": 60, "slow": 40}
LIMIT = {"penstock": 100, "pytorch": 90, "compiled": 150, "max-autotune": 300, "slow": 140}


def output_of(*command):
    try:
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit():
    """Returns PENSTOCK_COMMIT, or else git's short hash, with a + if the sources have been changed since."""
    if os.environ.get("PENSTOCK_COMMIT"):
        return os.environ["PENSTOCK_COMMIT"]
    found = output_of("git", "rev-parse", "--short", "HEAD")
    if not found:
        return ""
    return found + ("+" if output_of("git", "status", "--porcelain", "--untracked-files=no") else "")


def machine(dry_run):
    """Returns what a row says about where it was measured."""
    gpu = "" if dry_run else output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    name, _, driver = gpu.partition("\n")[0].partition(", ")
    return {"machine": name or "no GPU: dry run", "driver": driver, "cores": len(os.sched_getaffinity(0)),
            "commit": commit()}  # fmt: skip


# ---- What is measured -----------------------------------------------------------------------------


def kind(side, rung):
    if side == "penstock":
        return "slow" if rung in SLOW else side
    if rung == "max-autotune":
        return rung
    return "compiled" if rung == "best" or int(rung[1:]) >= 7 else side


def is_large(rung):
    return not rung.startswith("T") or ladder_table.ladder().has_large_batch(rung)


def sizes(model, rung, option, setting=""):
    """Returns the sizes of a run. It has enough steps to take about a second or more."""
    special = SETTINGS[setting][1] if setting else {}
    if option.dry_run:
        return {"steps": 2, "warmup": 4 if rung[0] == "I" else 1, "image_size": 32, "workers": 2, "batch": 4}
    workers = max(1, min(14, len(os.sched_getaffinity(0)) - 2))
    if rung[0] == "I":
        size = {"batch": INFERENCE_BATCH, "steps": 100, "warmup": 24}
    elif is_large(rung):
        size = {"batch": LARGE.get(model, SMALL), "steps": 60 if option.peers else 30, "warmup": 8}
    else:
        size = {"batch": SMALL, "steps": 100 if option.peers else 40, "warmup": 8}
    size |= {"image_size": 224, "workers": workers}
    return {name: special.get(name, value) for name, value in size.items()}


def words_of(size, names=("steps", "warmup", "image_size", "workers")):
    return [word for name in names for word in (f"--{name.replace('_', '-')}", str(size[name]))]


def run_ours(program, arguments, limit, option, repeat=1):
    program = option.programs.resolve() / (program + ("_emulated" if option.dry_run else ""))
    if not program.exists():
        return {"failed": f"there is no {program}"}
    result = ladder_table.ladder().run_rung([program], [*arguments], repeat, os.environ, limit)
    return result or {"failed": "see the log"}


def train(model, rung, setting, size, limit, option, repeat=1):
    ladder = ladder_table.ladder()
    name = next(name for name in [*ladder.RUNGS, *ladder.IMAGE_RUNGS] if rung == ladder.number_of(name))
    from_images = rung in IMAGES or setting == "JPEG files"
    how = "exhaustive" if rung in SLOW else "guessed" if int(rung[1:].rstrip("abc")) < 6 else "timed"
    if rung == "T16":
        size = {**size, "workers": 2}  # The engines decode.
    arguments = ["--model", "resnet8" if option.dry_run else model, "--batch", str(size["batch"]), *words_of(size),
                 *(["--images", str(option.images)] if from_images else ["--data", str(option.data)]),
                 "--plans", str(option.plans / f"ladder-plans-{model}-{how}")]  # fmt: skip
    result = run_ours(f"train/{name}", arguments, limit, option, repeat)
    if "failed" in result:
        return result
    losses = [loss for loss in result["losses"] if loss is not None]
    kept = ("name", "after", "change", "precision", "images_per_second", "load_ms", "copy_ms", "compute_ms", "idle",
            "device_bytes", "skipped_steps")  # fmt: skip
    return {**{key: result[key] for key in kept}, "with": result["operations"], "all": result["all_images_per_second"],
            "first_loss": losses[0], "last_loss": losses[-1]}  # fmt: skip


def infer(model, rung, setting, size, limit, option):
    ladder = ladder_table.inference_ladder()
    program, own = next((program, own) for number, program, own in ladder.RUNGS if number == rung)
    profiles = rung.startswith("I9")
    arguments = ["--model", "resnet8" if option.dry_run else model, *words_of(size), *own, "--data",
                 str(option.data), "--plans", str(option.plans / f"{ladder.plans_of(rung)}-{model}")]  # fmt: skip
    if not profiles or option.dry_run:
        arguments += ["--batches", f"2,{size['batch']}" if profiles else str(size["batch"])]
    if setting and SETTINGS[setting][1].get("free_loading"):
        arguments.append("--free-loading")
    result = run_ours(f"infer/rungs/{program}", arguments, limit, option)
    if "failed" in result:
        return result
    kept = ("after", "change", "precision", "images_per_second", "batch_ms", "load_ms", "copy_ms", "compute_ms", "bound",
            "bound_ms", "device_bytes", "requests", "contexts")  # fmt: skip
    return {**{key: result[key] for key in kept}, **ladder.named(rung, result), "with": result["operations"],
            "all": result["all_images_per_second"]}  # fmt: skip


def measure_pytorch(model, rung, size, limit, option):
    size = {**size, "steps": size["steps"] if option.dry_run or not is_large(rung) or rung in ("best", "max-autotune")
            else 20}  # fmt: skip  # Its loader's workers are what such a step waits for.
    with tempfile.TemporaryDirectory() as scratch:
        result = pathlib.Path(scratch, "result.json")
        command = [sys.executable, str(ROOT / "benchmarks/peers/pytorch_ladder.py"), "--data", str(option.data),
                   "--model", model, "--only", "best" if rung == "max-autotune" else rung, "--repeat", str(ROUNDS),
                   "--compile", rung if rung == "max-autotune" else "default", "--limit", str(limit),
                   "--batch", str(size["batch"]), "--large-batch", str(size["batch"]), "--json", str(result),
                   "--device", "cpu" if option.dry_run else "cuda", *words_of(size)]  # fmt: skip
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(option.plans / "inductor")}
        subprocess.run(command, env=environment, stdout=subprocess.PIPE)
        if not result.exists():
            return {"failed": "see the log"}
        found = json.loads(result.read_text())[0]
    if "failed" in found:
        return {"failed": found["failed"]}
    return {"with": found["with"], "images_per_second": found["images_per_second"], "all": found["all"],
            "steps": size["steps"], "last_loss": found["loss"]}  # fmt: skip


def measure(task, limit, where, option):
    model, side, rung, setting = task
    size = sizes(model, rung, option, setting)
    row = {"side": side, "model": model, "rung": rung, "setting": setting, **where, "date": f"{datetime.date.today()}", **size}
    if side == "pytorch":
        return row | measure_pytorch(model, rung, size, limit, option)
    if rung[0] == "I":
        return row | infer(model, rung, setting, size, limit, option)
    return row | train(model, rung, setting, size, limit, option, ROUNDS if option.peers else 1)


# ---- In which order -------------------------------------------------------------------------------


def has_torch():
    return importlib.util.find_spec("torch") is not None


def tasks(option):
    """Yields (model, side, rung, setting), each once, the most important first."""
    if option.peers:
        for model in option.models:
            for side, rung in PEERS:
                if side == "penstock" or has_torch():
                    yield model, side, rung, ""
        return
    ladder = ladder_table.ladder()
    rungs = [ladder.number_of(name) for name in ladder.RUNGS]
    main = [(model, rung) for model in option.models for rung in rungs if rung not in SLOW]
    first, others = main[: len(rungs) - len(SLOW)], main[len(rungs) - len(SLOW) :]
    yield from ((model, "penstock", rung, "") for model, rung in first)
    if INFERENCE_MODEL in option.models:
        yield from ((INFERENCE_MODEL, "penstock", rung[0], "") for rung in ladder_table.inference_ladder().RUNGS)
    yield from ((model, "penstock", rung, "") for model, rung in others)
    if INFERENCE_MODEL in option.models:
        for setting, (its, special) in SETTINGS.items():
            yield from ((special.get("model", INFERENCE_MODEL), "penstock", rung, setting) for rung in its)
    yield from ((model, "penstock", rung, "") for model in option.models for rung in IMAGES)
    yield from ((model, "penstock", rung, "") for model in option.models for rung in SLOW)


def wanted(option, rows, where):
    """Yields the tasks of all rounds that are not done yet."""
    done = {ladder_table.key(row): len(row.get("runs", "123")) for row in rows if {**row, **where} == row}
    for number in range(1, 2 if option.peers else ROUNDS + 1):
        for task in tasks(option):
            model, side, rung, setting = task
            if (rung in IMAGES or setting == "JPEG files") and not option.images:
                continue
            if (number > 1 and rung in SLOW) or done.get(task, 0) >= number:
                continue
            if not option.rungs or rung in option.rungs:
                yield task


def say(row):
    name = f"{row['model']:9} {row['side']:9} {row['rung']:13} {row['setting']:17}"
    print(name + (row["failed"] if "failed" in row else f"{row['images_per_second']:10.1f} images/s"), flush=True)


def write_left(path, left, peers):
    step = "ladder-peers" if peers else "ladder-table"
    models = dict.fromkeys(task[0] for task in left)
    path.write_text("".join(
        f"{step}={model}  ({', '.join(' '.join(filter(None, task[1:])) for task in dict.fromkeys(left) if task[0] == model)})\n"
        for model in models))  # fmt: skip


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
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    option = parser.parse_args()
    where = machine(option.dry_run)
    if not where["commit"]:
        sys.exit("ladder_measure.py: which commit is it? There is no git here: set PENSTOCK_COMMIT")
    end = time.monotonic() + option.seconds
    rows = ladder_table.merge(*(ladder_table.load(path) for path in (option.start, option.store) if path))
    if not option.peers:
        rows = [row for row in rows if {**row, **where} == row]
    left, failed, cannot = list(wanted(option, rows, where)), False, set()
    if option.peers and not has_torch():
        print("PyTorch is missing: nothing is measured beside it", flush=True)
        failed = not option.dry_run
    while left:
        task = left[0]
        seconds, what = end - time.monotonic(), kind(task[1], task[2])
        if seconds < NEEDS[what]:
            break
        left.pop(0)
        if task in cannot:
            continue
        row = measure(task, min(seconds - 5, LIMIT[what]), where, option)
        say(row)
        if "failed" in row:
            cannot.add(task)
            if what != "max-autotune":  # That one need not end; the table says so.
                failed = True
                continue
        if not option.peers:
            row = {**row, "runs": [ladder_table.figures(row)]}
            row = ladder_table.joined(row, next((other for other in rows if ladder_table.key(other) == task), None))
        rows = ladder_table.merge(rows, [row])
        ladder_table.save(option.store, rows)
    if left and option.left:
        write_left(option.left, left, option.peers)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
