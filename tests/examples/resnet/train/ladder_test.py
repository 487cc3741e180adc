#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ladder_test.py [--gpu] LADDER PROGRAMS

Runs the ladder, briefly, and checks what has to be equal: every rung trains on the same images in the same order,
so all have the same losses. On the emulated runtime bit for bit at one precision, and nearly so at others; there also
the table, the picture (where Python has matplotlib) and the column of a peer are looked at. On a GPU (--gpu) up to
rounding, at one precision and batch size; exit status 77 without one.
"""

import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from programs import require

on_gpu = "--gpu" in sys.argv
ladder, programs = sys.argv[-2:]
SMALL = ["--batch", "8" if on_gpu else "4", "--steps", "3", "--warmup", "1", "--records", "40", "--workers", "2"]
# Cheap for a GPU; in float with TF32, which every rung's format has engines for.
ON_GPU = ["--model", "resnet8", "--image-size", "32", "--precision", "tf32"]
# Each rung sums in another order, and tf32 keeps 11 binary digits of what is multiplied: losses of four steps (the
# first of them before any) differ by some units of the third decimal.
TOLERANCE = 0.02
RUNGS = 22 if on_gpu else 23  # On a GPU it takes minutes to time every plan.


def run_ladder(scratch, *options):
    command = [sys.executable, ladder, "--programs", programs, "--out", scratch, *options]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout)
    require(done.returncode == 0, "the ladder failed")
    return done.stdout, json.loads(pathlib.Path(scratch, "ladder.json").read_text())


def check_results(results):
    for result in results:
        by_hand = number_of(result) < 12  # The others' pipeline samples its copies.
        require(0 <= result["load_ms"] <= result["step_ms"] and (result["copy_ms"] > 0 or not by_hand), result)
        require(result["load_ms"] > 0 or result["rung"] != "T1", result)
        require(result["images_per_second"] > 0 and result["compute_ms"] > 0 and 0 <= result["idle"] <= 1, result)
        require(result["emulated"] != on_gpu, result)
        require(result["device_bytes"] > 0, result)
        after = next((other for other in results if other["rung"] == result["after"]), None)
        require(after or result["rung"] == "T0", f"{result['rung']} comes after {result['after']}, which is no rung")
    losses = {result["rung"]: result["losses"] for result in results}
    first = losses["T1"]
    require(len(losses) == RUNGS and len(set(first)) == 4, f"{len(losses)} rungs, losses of the first: {first}")
    same = {}
    for result in results:
        rung, mine = result["rung"], result["losses"]
        require(max(abs(a - b) / b for a, b in zip(mine, first)) <= TOLERANCE, f"{rung} has the losses {mine}, and T1 {first}")
        # Without a loss scale gradients may be lost, and no step is skipped.
        known = same.setdefault((result["precision"], rung == "T8b"), mine)
        require(on_gpu or mine == known, f"{rung} has the losses {mine}, and others of {result['precision']} {known}")
    if not on_gpu:
        require(same["fp16", False] != first != same["bf16", False] != same["fp16", False], f"nothing is rounded: {same}")
    print(f"{RUNGS} rungs have the same losses: {first}")


def number_of(result):
    """T4b: 4"""
    return int(result["rung"][1:].rstrip("abc"))


def check_batches(scratch):
    """--quick has larger batches from T10 on, unless they are given."""
    options = ["--", "--steps", "1", "--warmup", "1", "--cache", scratch]
    _, results = run_ladder(scratch, "--quick", "--only", "T9,T10", *options)
    require([result["batch"] for result in results] == [16, 64], results)


def check_text(text, results):
    require("EMULATED" in text and "memory MiB  GPU idle %" in text and "PyTorch" not in text, text)
    require("* a gain on another rung than here: T5 on that article's own start; T8 on T7b" in text, text)
    for result in results:
        row = next(line for line in text.splitlines() if line.startswith(f"{result['rung']} "))
        require(result["name"] in row and row.split()[-2:] == [f"{result['device_bytes'] / 2**20:.1f}", f"{100 * result['idle']:.1f}"], row)


def check_picture(text, path, results):
    if importlib.util.find_spec("matplotlib") is None:
        require("no picture" in text and not path.exists(), text)
        return
    texts = [element.text for element in xml.etree.ElementTree.parse(path).iter() if element.tag.endswith("}text")]
    for result in results:
        require(any(result["name"] in (text or "") for text in texts), f"{result['name']} is not in {texts}")


def check_peer(scratch):
    """PyTorch's column: of rungs with the same batch, and no other."""
    peer = {"model": "resnet8", "image_size": 32, "batch": 4}
    rows = [{**peer, "rung": "T2", "images_per_second": 123.4}, {**peer, "rung": "T1", "failed": "over 60 s"},
            {**peer, "rung": "T1", "batch": 8, "images_per_second": 77.7}]  # fmt: skip
    path = pathlib.Path(scratch, "peer.json")
    path.write_text(json.dumps(rows))
    text, results = run_ladder(scratch, "--quick", "--only", "T1,T2", "--peer", path, "--", *SMALL, "--cache", scratch)
    require([result["rung"] for result in results] == ["T1", "T2"], results)
    row = {line.split()[0]: line for line in text.splitlines() if line.startswith(("T1 ", "T2 "))}
    require("PyTorch" in text and "123.4" in row["T2"] and "77.7" not in text, text)


if on_gpu and (shutil.which("nvidia-smi") is None or subprocess.run(["nvidia-smi", "-L"]).returncode != 0):
    print("skipped: no GPU")
    sys.exit(77)
with tempfile.TemporaryDirectory() as scratch:
    if on_gpu:
        check_results(run_ladder(scratch, "--repeat", "1", "--skip", "T7b", "--", *ON_GPU, *SMALL, "--cache", scratch)[1])
        sys.exit(0)
    text, results = run_ladder(scratch, "--quick", "--", *SMALL, "--cache", scratch)
    check_results(results)
    check_text(text, results)
    check_picture(text, pathlib.Path(scratch, "ladder.svg"), results)
    check_peer(scratch)
    check_batches(scratch)
    for words, why in ((["--only", ""], "--only: the value is empty"), (["--only", "T1,,T2"], "an entry of T1,,T2 is empty"),
                       (["--only", "T1,T99"], "no rung T99; there are T0, T1, T2"), (["--out="], "--out: the value is empty"),
                       (["--repeat", "0"], "--repeat: 0 is no whole number from 1 on"), (["--ranks", "two"], "--ranks: two is no whole"),
                       (["--peer", "none"], "--peer: none cannot be read"), (["--peer", ladder], "cannot be read"),
                       (["--quick", "--programs", programs, "--only", "T1", "--skip", "T1"], "no rung is left. Without --images there are T0, T1"),
                       (["--quick", "--programs", programs, "--only", "T15"], "no rung is left. Without --images")):
        done = subprocess.run([sys.executable, ladder, *words], text=True, capture_output=True)
        require(done.returncode != 0 and why in done.stderr, done)
