#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
video_measure.py --program FILE --videos DIRECTORY --plans DIRECTORY --json FILE [--models MODEL,MODEL]
                 [--pairs N] [--seconds N] [--dry-run] [-- OPTION...]

Measures training from clips of video files (T17, examples/resnet/video) beside the same program with one batch that stays on
the device. Both run in turn, in N pairs for each model (default: 3). A first short run of each model chooses cuDNN's plans.
What stands behind -- goes to the runs that read videos.

Prints the ratio of each pair and their median, and writes each result to FILE at once. At the end it says for which runs there
was no time in --seconds. --dry-run is for the emulated program. The exit status is 1 if a run failed.
"""

import argparse
import pathlib
import statistics
import sys

sys.dont_write_bytecode = True
import timed_jobs
from images_measure import result_of

STEPS = {"resnet50": 40, "resnet18": 120}
NEEDS = 10  # seconds, without which a run is not begun


def measure(model, steps, extra, option, limit):
    size = ["--image-size", "16", "--batch", "32"] if option.dry_run else ["--image-size", "224", "--batch", "256"]
    steps, warmup = (2, 1) if option.dry_run else (steps, 20)
    found = result_of([option.program, "--model", "resnet8" if option.dry_run else model, "--videos", option.videos,
                       "--clips-per-file", "64", "--plans", option.plans / f"video-plans-{model}", *size,
                       "--steps", str(steps), "--warmup", str(warmup), *extra], limit)  # fmt: skip
    keys = ("failed", "images_per_second", "step_ms", "compute_ms", "load_ms", "idle", "cpu_cores",
            "first_batch_seconds", "input_images_per_second")  # fmt: skip
    return {key: found[key] for key in keys if key in found}


def jobs(option):
    for model in option.models.split(","):
        def work(extra, steps, model=model):
            return lambda limit: measure(model, steps, extra, option, limit)

        yield f"{model} plans", NEEDS, work(["--synthetic"], 1)
        for pair in range(1, option.pairs + 1):
            yield f"{model} synthetic {pair}", NEEDS, work(["--synthetic"], STEPS[model])
            yield f"{model} videos {pair}", NEEDS, work(option.extra, STEPS[model])


def ratios(results, model, pairs):
    """Of the pairs of which both runs are there."""
    speeds = {name: row["images_per_second"] for name, row in results.items() if "images_per_second" in row}
    names = [(f"{model} videos {pair}", f"{model} synthetic {pair}") for pair in range(1, pairs + 1)]
    return [speeds[videos] / speeds[free] for videos, free in names if videos in speeds and free in speeds]


def table(results, option):
    lines = [f"{'':24}{'frames/s':>10}{'step ms':>9}{'load ms':>9}{'idle %':>8}{'cores':>7}{'first batch s':>15}"]
    for name, row in results.items():
        lines.append(f"{name:24}" + (row["failed"] if "failed" in row else
                     f"{row['images_per_second']:10.1f}{row['step_ms']:9.2f}{row['load_ms']:9.2f}{100 * row['idle']:8.2f}"
                     f"{row['cpu_cores']:7.2f}{row['first_batch_seconds']:15.2f}"))  # fmt: skip
    for model in option.models.split(","):
        if found := ratios(results, model, option.pairs):
            each = ", ".join(f"{ratio:.3f}" for ratio in found)
            lines.append(f"{model}: videos / synthetic {statistics.median(found):.3f} (the pairs: {each})")
    return "\n".join(lines)


def main():
    argv = sys.argv[1:]
    split = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    for name in ("program", "videos", "plans", "json"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--models", default=",".join(STEPS))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--dry-run", action="store_true")
    option = parser.parse_args(argv[:split])
    option.extra = argv[split + 1 :]
    if unknown := set(option.models.split(",")) - set(STEPS):
        parser.error(f"--models: there is no {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}")
    results, left = timed_jobs.run(jobs(option), option, option.json, 24)
    print(f"\n{table(results, option)}")
    return timed_jobs.finish(results, left)


if __name__ == "__main__":
    sys.exit(main())
