#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
migration_measure.py --programs DIRECTORY --trace PROGRAM --images DIRECTORY --out DIRECTORY [--seconds N] [--dry-run]

Runs the five programs of docs/migration.md on the images of DIRECTORY/migration-ppm and DIRECTORY/migration-jpeg. Each
runs three times alone (images/s), by turns; then steps 2 to 5 run under penstock-trace. It checks what the page says: the
histograms of all steps are the same, and each step has the finding that the next step removes. It writes results.json and a
folder for each report into --out. migration_table.py makes the page's tables and pictures from them. At the end it says for
which runs there was no time in N seconds. --dry-run uses emulated programs and few images, so its figures mean nothing. The
exit status is 1 if a run failed or the page is wrong.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

import ladder_measure  # what a row says of the machine
import migration_table

STEPS, KINDS = migration_table.STEPS, migration_table.KINDS
REPEAT = 3
CHECKED = 320  # images of the runs whose histograms are compared
# Images of a run: some tenths of a second. Step 5 needs many, since its first batches are ready before it begins.
IMAGES = {"ppm": {"1_cpu": 100, "2_kernels": 640, "3_reuse": 1500, "4_streams": 3000, "5_pipeline": 12000},
          "jpeg": {"1_cpu": 100, "2_kernels": 320, "3_reuse": 320, "4_streams": 640, "5_pipeline": 6400}}  # fmt: skip
TRACED = {"2_kernels": 320, "3_reuse": 320, "4_streams": 320, "5_pipeline": 3200}
SHOWN = 2.5  # milliseconds of the timeline


def output_of(command, limit):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=max(1, limit))  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"exit status {done.returncode}: {done.stdout.strip()[-300:]}")
    return done.stdout


def said(text, name):
    return re.search(rf"^{name}: (.*)$", text, re.MULTILINE)[1]


class Measurement:
    def __init__(self, option):
        self.option, self.end = option, time.monotonic() + option.seconds
        self.rows, self.wrong, self.left = {}, [], []

    def program(self, step):
        return self.option.programs / (step + ("_emulated" if self.option.dry_run else ""))

    def images(self, kind):
        return self.option.images / f"migration-{kind}" / "train"

    def count(self, images):
        return 40 if self.option.dry_run else images

    def row(self, step, kind):
        return self.rows.setdefault((kind, step), {"kind": kind, "step": step})

    def try_to(self, what, measure, *arguments):
        left = self.end - time.monotonic()
        if left < (1 if self.option.dry_run else 10):
            self.left.append(what)
            return
        try:
            measure(*arguments, left)
        except (RuntimeError, subprocess.TimeoutExpired, OSError) as error:
            self.wrong.append(f"{what}: {error}")
        self.save()

    def run_for_checksum(self, step, kind, limit):
        text = output_of([self.program(step), self.images(kind), self.count(CHECKED)], limit)
        self.row(step, kind)["checksum"] = said(text, "checksum")

    def run_alone(self, step, kind, limit):
        images = self.count(IMAGES[kind][step])
        text = output_of([self.program(step), self.images(kind), images], limit)
        row = self.row(step, kind)
        row["images"] = images
        row.setdefault("all", []).append(float(said(text, "images/s")))
        row["images_per_second"] = statistics.median(row["all"])
        if step == "1_cpu":
            row["told"] = said(text, "milliseconds an image")

    def run_traced(self, step, kind, limit):
        folder = self.option.out / f"{step}-{kind}"
        output_of([self.option.trace, "--quiet", "--out", folder, "--samples-per-step",
                   "32" if step == "5_pipeline" else "1", "--", self.program(step), self.images(kind),
                   self.count(TRACED[step])], limit)  # fmt: skip
        row = self.row(step, kind)
        row["findings"] = json.loads((folder / "findings.json").read_text())
        report = json.loads((folder / "report.json").read_text())
        row["idle"] = max((device["idle"] for device in report["devices"]), default=0)
        if kind == migration_table.PICTURED:
            row["timeline"] = timeline(json.loads((folder / "trace.json").read_text()))
        (folder / "trace.json").unlink()
        (folder / "trace.recording").unlink()

    def save(self):
        rows = [self.rows[key] for key in sorted(self.rows)]
        where = {**ladder_measure.machine(self.option.dry_run), "date": time.strftime("%Y-%m-%d"),
                 "size": "64 x 48" if self.option.dry_run else "512 x 512"}  # fmt: skip
        (self.option.out / "results.json").write_text(json.dumps({**where, "rows": rows}, indent=1) + "\n")

    def check_story(self):
        for kind in KINDS:
            sums = {step: row["checksum"] for step in STEPS if "checksum" in (row := self.rows.get((kind, step), {}))}
            if len(set(sums.values())) > 1:
                self.wrong.append(f"{kind}: the histograms are not the same: {sums}")
            for step, rules in migration_table.FINDINGS.items():
                found = self.rows.get((kind, step), {}).get("findings")
                self.wrong += [f"{step}, {kind}: {rule} should{' not' * absent} be found" for rule, absent in rules.items()
                               if found is not None and absent == (rule in [one["rule"] for one in found])]  # fmt: skip


# ---- The timeline ---------------------------------------------------------------------------------


def timeline(trace):
    """Returns what happens in SHOWN milliseconds in the middle of a recording: for each row a list of [kind, begin, duration, name],
    in microseconds. The rows are the main thread, at most three workers, copies and kernels."""
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    steps = sorted((event for event in events if event["name"] == "step"), key=lambda event: event["ts"])
    middle = steps[len(steps) // 2]
    begin, end = middle["ts"], middle["ts"] + 1000 * SHOWN
    rows = {"main thread": [], "copies": [], "kernels": []}
    workers = {}
    for event in sorted(events, key=lambda event: event["ts"]):
        first, last = max(event["ts"], begin), min(event["ts"] + event["dur"], end)
        kind = kind_of(event)
        if first >= last or not kind:
            continue
        at = [kind, round(first - begin, 1), round(last - first, 1), event["name"]]
        if kind in ("copy", "kernel"):
            rows["copies" if kind == "copy" else "kernels"].append(at)
        elif event["tid"] == middle["tid"]:
            rows["main thread"].append(at)
        elif kind == "load":
            workers.setdefault(event["tid"], []).append(at)
    shown = dict(zip(["a worker", "another", "a third"], list(workers.values())[:3]))
    return {"workers": len(workers), "rows": {"main thread": rows.pop("main thread"), **shown, **rows}}


def kind_of(event):
    """Returns the kind of an event, which has a colour. It is empty if the event is not shown."""
    name, category = event["name"], event["cat"]
    if category in ("copy", "fill"):
        return "copy"
    if category in ("kernel", "host_function", "graph"):
        return "kernel"
    if category == "range":
        return {"load": "load", "next": "wait"}.get(name, "")
    if re.match(r"cuda(Malloc|Free|HostAlloc)", name):
        return "allocate"
    if re.match(r"cuda(Memcpy|Memset|.*Synchronize)(_v\d+)?$", name):
        return "wait"
    return "call" if category == "call" else ""


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    for name in ("programs", "trace", "images", "out"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--dry-run", action="store_true")
    option = parser.parse_args()
    measurement = Measurement(option)
    turns = [("for the histograms", measurement.run_for_checksum, STEPS),
             *[(f"run {turn + 1}", measurement.run_alone, STEPS) for turn in range(REPEAT)],
             ("traced", measurement.run_traced, STEPS[1:])]  # fmt: skip
    for name, measure, steps in turns:
        for kind in KINDS:
            for step in steps:
                measurement.try_to(f"{step}, {kind}, {name}", measure, step, kind)
    measurement.check_story()
    for text in measurement.wrong:
        print(f"FAILED: {text}")
    if measurement.left:
        print(f"There was no time for: {'; '.join(measurement.left)}")
    return bool(measurement.wrong or measurement.left)


if __name__ == "__main__":
    sys.exit(main())
