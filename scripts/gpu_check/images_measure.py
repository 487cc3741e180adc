#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
images_measure.py --programs DIRECTORY --images DIRECTORY --small DIRECTORY --plans DIRECTORY --json FILE
                  [--seconds N] [--dry-run]

Measures training from JPEG files: T15 (the CPU decodes) and T16 (the GPU's engines decode, or both together). In the same
call it measures these programs with data for free, PyTorch (benchmarks/peers/pytorch_images.py) and, if Python has DALI,
NVIDIA DALI with PyTorch behind it (dali_images.py). Then it measures the loaders alone (image_loader, DALI, DataLoader), and
T16's input while the training uses another batch. --images and --small are folders that make_images has written. The small
images are also read from a packed file, DIRECTORY/train.pack.

Prints a table, and writes each result to FILE at once. The most important runs come first. At the end it says for which
there was no time in N seconds. --dry-run uses emulated programs, tiny images, and PyTorch on the CPU if Python has it. The
exit status is 1 if a run failed.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import timed_jobs

ROOT = pathlib.Path(__file__).resolve().parents[2]

# (name, program, model, batch, data, options); data: "images", "pack" or "free". The loader has no model.
OURS = [
    ("resnet18 free", "15_images", "resnet18", 512, "free", []),
    ("resnet18 engines", "16_hardware_decoder", "resnet18", 512, "images", []),
    ("resnet18 both, share found", "16_hardware_decoder", "resnet18", 512, "images",
     ["--cpu-threads", "THIRD", "--cpu-share", "auto", "--steps", "400"]),
    ("loader engines", "image_loader", None, 512, "images", []),
    ("loader both", "image_loader", None, 512, "images", ["--decoder", "both", "--warmup", "8"]),
    ("resnet50 free", "15_images", "resnet50", 256, "free", []),
    ("resnet50 engines", "16_hardware_decoder", "resnet50", 256, "images", []),
    ("resnet18 input apart", "16_hardware_decoder", "resnet18", 512, "images", ["--input-apart"]),
    ("resnet18 cpu", "15_images", "resnet18", 512, "images", ["--workers", "CORES"]),
    ("resnet18 both, share 0.35", "16_hardware_decoder", "resnet18", 512, "images",
     ["--cpu-threads", "THIRD", "--cpu-share", "0.35"]),
    ("loader cpu", "image_loader", None, 512, "images", ["--decoder", "cpu"]),
    ("resnet50 cpu", "15_images", "resnet50", 256, "images", ["--workers", "CORES"]),
    ("resnet18 pack", "15_images", "resnet18", 512, "pack", ["--workers", "CORES"]),
]  # fmt: skip
PYTORCH = [("resnet18", "images"), ("resnet50", "images"), ("resnet18", "small"), ("loader", "images"),
           ("resnet50-free", "images"), ("resnet18-free", "images"), ("loader-pillow", "images")]  # fmt: skip
DALI = ["loader", "resnet18", "resnet50"]
NEEDS = {"ours": 20, "pytorch": 60, "dali": 60}  # seconds, without which one is not begun


def cores():
    return len(os.sched_getaffinity(0))


def result_of(command, limit):
    """Returns what a program of ours writes to --json, and what it has printed."""
    with tempfile.TemporaryDirectory() as scratch:
        result = pathlib.Path(scratch, "result.json")
        try:
            done = subprocess.run([*command, "--json", result], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=limit)  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"failed": f"not done in {limit:.0f} s"}
        if done.returncode != 0:
            return {"failed": f"exit status {done.returncode}: {done.stderr.strip()[-300:]}"}
        return {**json.loads(result.read_text()), "told": done.stdout.strip().splitlines()[-4:]}


def with_length(extra, length, option):
    """Adds the options of the length. A row's own options have priority, except in a dry run."""
    pairs = dict(length)
    for name, value in zip(extra, [*extra[1:], ""]):
        if name in ("--steps", "--warmup") and not option.dry_run:
            pairs[name] = value
    kept = [word for word, before in zip(extra, ["", *extra]) if not {word, before} & {"--steps", "--warmup"}]
    return [*kept, *(word for pair in pairs.items() for word in pair)]


def measure_ours(row, option, limit):
    name, program, model, batch, data, extra = row
    words = {"CORES": str(cores()), "THIRD": str(max(1, cores() // 3 - 1))}
    extra = [words.get(word, word) for word in extra]
    size = ["--image-size", "32" if option.dry_run else "224", "--batch", str(8 if option.dry_run else batch)]
    suffix = "_emulated" if option.dry_run else ""
    if model is None:
        length = {"--seconds": "0.1", "--warmup": "0.1"} if option.dry_run else {}
        return result_of([option.programs.parents[1] / f"images/{program}{suffix}", option.images / "train", *size,
                          *with_length(extra, length, option)], limit)  # fmt: skip
    length = {"--steps": "2", "--warmup": "1"} if option.dry_run else {"--steps": "60", "--warmup": "15"}
    where = option.small / "train.pack" if data == "pack" else option.images
    found = result_of([option.programs / (program + suffix), "--model", "resnet8" if option.dry_run else model,
                       "--images", where, "--plans", option.plans / f"images-plans-{model}", *size,
                       *with_length(extra, length, option), *(["--synthetic"] if data == "free" else [])], limit)  # fmt: skip
    keys = ("failed", "images_per_second", "step_ms", "compute_ms", "load_ms", "idle", "cpu_cores",
            "first_batch_seconds", "input_images_per_second", "told")  # fmt: skip
    return {key: found[key] for key in keys if key in found}


def measure_peer(script, name, data, option, limit):
    """Measures pytorch_images.py or dali_images.py."""
    with tempfile.TemporaryDirectory() as scratch:
        result = pathlib.Path(scratch, "result.json")
        small = ["--device", "cpu", "--image-size", "32", "--batch18", "8", "--batch50", "8", "--steps", "2",
                 "--warmup", "1", "--workers", "2"]  # fmt: skip
        folder = (option.small if data == "small" else option.images) / "train"
        command = [sys.executable, ROOT / "benchmarks/peers" / script, "--images", folder, "--only", name,
                   "--limit", str(int(limit)), "--json", result,
                   *(small if option.dry_run else ["--workers", str(cores())])]  # fmt: skip
        subprocess.run(command, env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(option.plans / "inductor")},
                       stdout=subprocess.PIPE)  # fmt: skip
        if not result.exists():
            return {"failed": "see the log"}
        return json.loads(result.read_text())[name]


def free_of(name, results):
    """Returns the images/s with one batch that stays on the device, for the column beside a row."""
    if "free_images_per_second" in results[name]:
        return results[name]["free_images_per_second"]
    side, model = ("PyTorch", name.split()[1]) if name.startswith("PyTorch") else ("", name.split()[0])
    return results.get(f"PyTorch {model}-free" if side else f"{model} free", {}).get("images_per_second")


def table(results):
    lines = [f"{'':30}{'images/s':>10}{'of free':>9}{'compute ms':>12}{'cores':>7}{'first batch s':>15}{'input/s':>9}"]
    for name, row in results.items():
        if "failed" in row:
            lines.append(f"{name:30}{row['failed']}")
            continue
        free = free_of(name, results)
        ratio = f"{row['images_per_second'] / free:9.3f}" if free else " " * 9
        rest = "".join(f"{row[key]:{width}.2f}" if key in row else " " * width
                       for key, width in (("compute_ms", 12), ("cpu_cores", 7), ("first_batch_seconds", 15)))  # fmt: skip
        beside = row.get("input_images_per_second", 0)
        lines.append(f"{name:30}{row['images_per_second']:10.1f}{ratio}{rest}" + (f"{beside:9.0f}" if beside else ""))
    return "\n".join(lines)


def has_package(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def jobs(option):
    """Yields (name, seconds that it needs, how to measure it). Ours and the peers' take turns, so that they are near in time."""
    ours = [(row[0], NEEDS["ours"], lambda limit, row=row: measure_ours(row, option, limit)) for row in OURS]
    if not has_package("torch") or not has_package("torchvision"):
        print("PyTorch or torchvision is missing: ours alone")
        return ours
    peers = [(f"PyTorch {name}" + (" (small)" if data == "small" else ""), NEEDS["pytorch"],
              lambda limit, name=name, data=data: measure_peer("pytorch_images.py", name, data, option, limit))
             for name, data in PYTORCH]  # fmt: skip
    dali = [(f"DALI {name}", NEEDS["dali"],
             lambda limit, name=name: measure_peer("dali_images.py", name, "images", option, limit))
            for name in DALI]  # fmt: skip
    if not has_package("nvidia.dali"):
        print("DALI is missing: without it (`scripts/setup dali` makes what a machine without a network needs)")
        dali = []
    return (ours[:5] + dali[:2] + ours[5:7] + dali[2:] + peers[:1] + ours[7:9] + peers[1:2] + ours[9:] + peers[2:])


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    for name in ("programs", "images", "small", "plans", "json"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--dry-run", action="store_true")
    option = parser.parse_args()
    results, left = timed_jobs.run(jobs(option), option, option.json, 30)
    print(f"\n{table(results)}")
    return timed_jobs.finish(results, left)


if __name__ == "__main__":
    sys.exit(main())
