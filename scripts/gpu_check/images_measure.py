#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
images_measure.py --programs DIRECTORY --images DIRECTORY --small DIRECTORY --plans DIRECTORY --json FILE
                  [--seconds N] [--dry-run]

Training from JPEG files: T15 (the CPU decodes) and T16 (the GPU's engines, and both together) beside the same
programs with data for free, and beside PyTorch (benchmarks/peers/pytorch_images.py) in the same call. --images and
--small: what make_images has written; of the small ones a packed file is read too, DIRECTORY/train.pack.

Prints a table, and keeps the results in FILE as they come. What is worth most comes first; what there is no time
for in N seconds is said. --dry-run: emulated programs, tiny images, PyTorch on the CPU if Python has it.
Exit status 1 when a run failed.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

# (name, program, model, batch, data, options); data: "images", "pack" or "free".
OURS = [
    ("resnet50 free", "15_images", "resnet50", 256, "free", []),
    ("resnet50 engines", "16_hardware_decoder", "resnet50", 256, "images", ["--workers", "2"]),
    ("resnet18 free", "15_images", "resnet18", 512, "free", []),
    ("resnet18 cpu", "15_images", "resnet18", 512, "images", ["--workers", "CORES"]),
    ("resnet18 both", "16_hardware_decoder", "resnet18", 512, "images",
     ["--workers", "2", "--cpu-threads", "HALF", "--cpu-share", "0.35"]),
    ("resnet18 engines", "16_hardware_decoder", "resnet18", 512, "images", ["--workers", "2"]),
    ("resnet50 cpu", "15_images", "resnet50", 256, "images", ["--workers", "CORES"]),
    ("resnet18 pack", "15_images", "resnet18", 512, "pack", ["--workers", "CORES"]),
]  # fmt: skip
PYTORCH = [("resnet18", "images"), ("resnet50", "images"), ("resnet18", "small"), ("loader", "images"),
           ("resnet50-free", "images"), ("resnet18-free", "images"), ("loader-pillow", "images")]  # fmt: skip
NEEDS = {"ours": 20, "pytorch": 60}  # seconds, without which one is not begun


def cores():
    return len(os.sched_getaffinity(0))


def measure_ours(row, option, limit):
    name, program, model, batch, data, extra = row
    path = option.programs / (program + ("_emulated" if option.dry_run else ""))
    steps = ["--steps", "2", "--warmup", "1"] if option.dry_run else ["--steps", "60", "--warmup", "15"]
    size = ["--image-size", "32"] if option.dry_run else ["--image-size", "224"]
    where = option.small / "train.pack" if data == "pack" else option.images
    words = {"CORES": str(cores()), "HALF": str(max(1, cores() // 2 - 1))}
    with tempfile.TemporaryDirectory() as scratch:
        result = pathlib.Path(scratch, "result.json")
        command = [path, "--model", "resnet8" if option.dry_run else model, "--batch", str(8 if option.dry_run else batch),
                   "--images", where, "--plans", option.plans / f"images-plans-{model}", "--json", result,
                   *steps, *size, *[words.get(word, word) for word in extra],
                   *(["--synthetic"] if data == "free" else [])]  # fmt: skip
        try:
            done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit)
        except subprocess.TimeoutExpired:
            return {"failed": f"not done in {limit:.0f} s"}
        if done.returncode != 0:
            return {"failed": f"exit status {done.returncode}: {done.stderr.strip()[-300:]}"}
        found = json.loads(result.read_text())
    keys = ("images_per_second", "step_ms", "compute_ms", "load_ms", "idle", "cpu_cores", "first_batch_seconds")
    return {**{key: found[key] for key in keys}, "told": done.stdout.strip().splitlines()[-4:]}


def measure_pytorch(name, data, option, limit):
    with tempfile.TemporaryDirectory() as scratch:
        result = pathlib.Path(scratch, "result.json")
        small = ["--device", "cpu", "--image-size", "32", "--batch18", "8", "--batch50", "8", "--steps", "2",
                 "--warmup", "1", "--workers", "2"]  # fmt: skip
        folder = (option.small if data == "small" else option.images) / "train"
        command = [sys.executable, ROOT / "benchmarks/peers/pytorch_images.py", "--images", folder, "--only", name,
                   "--limit", str(int(limit)), "--json", result,
                   *(small if option.dry_run else ["--workers", str(cores())])]  # fmt: skip
        subprocess.run(command, env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(option.plans / "inductor")},
                       stdout=subprocess.PIPE)  # fmt: skip
        if not result.exists():
            return {"failed": "see the log"}
        return json.loads(result.read_text())[name]


def table(results):
    lines = [f"{'':26}{'images/s':>10}{'of free':>9}{'compute ms':>12}{'cores':>7}{'first batch s':>15}"]
    for name, row in results.items():
        if "failed" in row:
            lines.append(f"{name:26}{row['failed']}")
            continue
        model, free = name.split()[0], None
        if model in ("resnet18", "resnet50"):
            free = results.get(f"{model} free", {}).get("images_per_second")
        ratio = f"{row['images_per_second'] / free:9.3f}" if free else " " * 9
        rest = "".join(f"{row[key]:{width}.2f}" if key in row else " " * width
                       for key, width in (("compute_ms", 12), ("cpu_cores", 7), ("first_batch_seconds", 15)))  # fmt: skip
        lines.append(f"{name:26}{row['images_per_second']:10.1f}{ratio}{rest}")
    return "\n".join(lines)


def jobs(option):
    """(side, name, how to measure it), ours and PyTorch's by turns: each has the other near in time."""
    ours = [("ours", row[0], lambda limit, row=row: measure_ours(row, option, limit)) for row in OURS]
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("torchvision") is None:
        print("PyTorch or torchvision is missing: ours alone")
        return ours
    peers = [("pytorch", f"PyTorch {name}" + (" (small)" if data == "small" else ""),
              lambda limit, name=name, data=data: measure_pytorch(name, data, option, limit))
             for name, data in PYTORCH]  # fmt: skip
    return ours[:4] + peers[:1] + ours[4:5] + peers[1:2] + ours[5:] + peers[2:]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    for name in ("programs", "images", "small", "plans", "json"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--dry-run", action="store_true")
    option = parser.parse_args()
    end, results, left = time.monotonic() + option.seconds, {}, []
    for side, name, measure in jobs(option):
        limit = end - time.monotonic()
        if limit < (1 if option.dry_run else NEEDS[side]):
            left.append(name)
            continue
        results[name] = measure(min(limit, 150))
        row = results[name]
        print(f"{name:26}" + (row["failed"] if "failed" in row else f"{row['images_per_second']:10.1f} images/s"),
              flush=True)  # fmt: skip
        option.json.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\n{table(results)}")
    if left:
        print(f"There was no time for: {', '.join(left)}")
    return any("failed" in row for row in results.values())


if __name__ == "__main__":
    sys.exit(main())
