#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
distributed_measure.py --programs DIRECTORY --data DIRECTORY --plans DIRECTORY --trace PROGRAM --out DIRECTORY
                       [--ranks N] [--model resnet50] [--batch 256] [--seconds N] [--dry-run]

Measures T13 on one GPU and on N (2), with data for free and from records, and PyTorch's DDP
(benchmarks/peers/pytorch_ddp.py) in the same call. Also measures synchronised batch norm and other buckets, and records all
ranks, which `penstock-trace merge` puts together. --batch is the batch of each GPU.

Prints a table, and writes each result to DIRECTORY/distributed.json at once, and the ranks' report to ranks.txt. The most
important runs come first. At the end it says for which there was no time in N seconds. --dry-run uses emulated programs,
tiny images, and PyTorch on the CPU if Python has it. The exit status is 1 if a run failed.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import timed_jobs

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDS = 20  # seconds, without which a run is not begun

# (name, whose, on one GPU or all, options)
RUNS = [
    ("T13, free, 1", "ours", 1, ["--synthetic"]),
    ("T13, free, all", "ours", 0, ["--synthetic"]),
    ("PyTorch compiled, free, all", "pytorch", 0, []),
    ("PyTorch compiled, free, 1", "pytorch", 1, []),
    ("T13, records, 1", "ours", 1, []),
    ("T13, records, all", "ours", 0, []),
    ("T13, free, all, --sync-batch-norm", "ours", 0, ["--synthetic", "--sync-batch-norm"]),
    ("T13, free, all, one bucket", "ours", 0, ["--synthetic", "--first-bucket", "1000"]),
    ("T13, free, all, 8 MiB", "ours", 0, ["--synthetic", "--bucket", "8"]),
    ("T13, free, all, 50 MiB", "ours", 0, ["--synthetic", "--bucket", "50"]),
    ("PyTorch eager, free, all", "pytorch", 0, ["--eager"]),
    ("PyTorch eager, free, 1", "pytorch", 1, ["--eager"]),
]


def started(ranks, command):
    return [ROOT / "scripts/launch", "-n", str(ranks), "--", *command] if ranks > 1 else command


def ours(option, steps, extra):
    tiny = option.dry_run
    return [option.programs / ("13_distributed" + ("_emulated" if tiny else "")),
            "--model", "resnet8" if tiny else option.model, "--batch", "8" if tiny else str(option.batch),
            "--image-size", "32" if tiny else "224", "--data", option.data,
            "--plans", option.plans / f"distributed-plans-{option.model}",
            "--steps", "2" if tiny else str(steps), "--warmup", "1" if tiny else "15", *extra]  # fmt: skip


def pytorch(option, extra):
    small = ["--device", "cpu", "--model", "resnet18", "--batch", "2", "--image-size", "32", "--steps", "2", "--warmup", "1"]
    return [sys.executable, ROOT / "benchmarks/peers/pytorch_ddp.py",
            *([*small, "--eager"] if option.dry_run else ["--model", option.model, "--batch", str(option.batch)]), *extra]  # fmt: skip


def run(command, limit):
    """Returns why it failed, or None."""
    # NVLink's multicast (NVLS) is left alone: the figures are of machines where it may not be used.
    environment = {**os.environ, "NCCL_NVLS_ENABLE": os.environ.get("NCCL_NVLS_ENABLE", "0")}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        output = child.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        child.terminate()  # The launcher ends its ranks.
        child.communicate()
        return f"not done in {limit:.0f} s"
    return None if child.returncode == 0 else f"exit status {child.returncode}: {output.strip()[-600:]}"


def measure(row, option, limit):
    _, whose, ranks, extra = row
    command = ours(option, 60, extra) if whose == "ours" else pytorch(option, extra)
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch, "result.json")
        why = run(started(ranks or option.ranks, [*command, "--json", path]), limit)
        if why:
            return {"failed": why}
        found = json.loads(path.read_text())
    if found["ranks"] != (ranks or option.ranks):
        return {"failed": f"it ran on {found['ranks']} ranks"}
    return {key: found[key] for key in ("images_per_second", "step_ms", "compute_ms", "idle", "torch") if key in found}


def record(option, limit):
    """Records twenty steps of all ranks by penstock-trace, to show where the time of a step goes, and how much of the
    communication is not hidden."""
    with tempfile.TemporaryDirectory() as scratch:
        command = ["scripts/profile", "--tool", "trace", "--out", scratch, "--", *ours(option, 20, ["--synthetic"])]
        os.environ["PENSTOCK_TRACE"] = str(option.trace)
        why = run(started(option.ranks, command), limit) or run([option.trace, "merge", scratch], limit)
        if why:
            return {"failed": why}
        for name in ("ranks.txt", "ranks.json"):
            shutil.copy(pathlib.Path(scratch, name), option.out)
    print((option.out / "ranks.txt").read_text())
    return {}


def ratios(results, ranks):
    speed = lambda name: results.get(name, {}).get("images_per_second")
    pairs = [("all / (N x 1), free", "T13, free, all", "T13, free, 1", ranks),
             ("all / (N x 1), records", "T13, records, all", "T13, records, 1", ranks),
             ("records / free, all", "T13, records, all", "T13, free, all", 1),
             ("all: T13 / PyTorch compiled", "T13, free, all", "PyTorch compiled, free, all", 1),
             ("PyTorch: all / (N x 1), compiled", "PyTorch compiled, free, all", "PyTorch compiled, free, 1", ranks)]  # fmt: skip
    return {name: speed(a) / (times * speed(b)) for name, a, b, times in pairs if speed(a) and speed(b)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    for name in ("programs", "data", "plans", "trace", "out"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--dry-run", action="store_true")
    option = parser.parse_args()
    os.chdir(ROOT)
    has_torch = importlib.util.find_spec("torch") is not None
    jobs = [(row[0], NEEDS, lambda limit, row=row: measure(row, option, limit)) for row in RUNS if row[1] == "ours" or has_torch]
    jobs.insert(6 if has_torch else 4, ("recording", NEEDS, lambda limit: record(option, limit)))
    if not has_torch:
        print("PyTorch is missing: ours alone")
    results, left = timed_jobs.run(jobs, option, option.out / "distributed.json", 34)
    print()
    for name, ratio in ratios(results, option.ranks).items():
        print(f"{name:34}{ratio:10.3f}")
    return timed_jobs.finish(results, left)


if __name__ == "__main__":
    sys.exit(main())
