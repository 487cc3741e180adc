#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ranges_test.py PENSTOCK_TRACE TRAINING INFERENCE: what a profiler sees of the rungs in the two folders: ranges with
colours, an epoch's own name, the loss that is read, layers with their shapes where they are asked for; and memory.
"""

import json
import os
import pathlib
import sys
import tempfile

from programs import SMALL, require, run

trace, training, inference = (pathlib.Path(word).resolve() for word in sys.argv[1:])
STEPS, WARMUP, BATCH, EPOCH = 5, 1, 8, 3  # steps; EPOCH of them are one
TRAINING = [*SMALL, "--batch", BATCH, "--records", BATCH * EPOCH, "--steps", STEPS, "--warmup", WARMUP]
COLOURS = {"step": "#7b8798", "get batch": "#4e79a7", "copy batch": "#f28e2b", "forward": "#59a14f", "loss": "#b07aa1",
           "backward": "#3fb6b2", "optimizer": "#e3b72f", "read loss": "#9c755f", "epoch 1": "#7b8798"}  # fmt: skip


def traced(program, *options):
    """Ranges of the main domain by name, the report, and what the program said of itself."""
    run([trace, "--quiet", "--out", "out", "--", program, *options, "--json", "result.json"])
    events = json.loads(pathlib.Path("out/trace.json").read_text())["traceEvents"]
    ranges = {}
    for event in events:
        if event.get("cat") == "range" and event["args"].get("domain") == "penstock":
            ranges.setdefault(event["name"], []).append(event["args"])
    report = json.loads(pathlib.Path("out/report.json").read_text())
    return ranges, report, json.loads(pathlib.Path("result.json").read_text())


def payloads(ranges, name):
    return [its["payload"] for its in ranges.get(name, [])]


def check_training():
    ranges, report, result = traced(training / "01_baseline_emulated", *TRAINING)
    for name, colour in COLOURS.items():
        require({its.get("color") for its in ranges.get(name, [])} == {colour}, f"{name}: {ranges.get(name)}")
    require(len(ranges["read loss"]) == STEPS + WARMUP, ranges["read loss"])
    require([payloads(ranges, f"epoch {number}") for number in range(3)] == [[0], [1], []], list(ranges))
    require(not any("conv1" in name or name.startswith("fc ") for name in ranges), list(ranges))
    # The network, the batch of each step, and nothing else is there: as the program itself says.
    (memory,) = report["memory"]
    require(memory["peak"] >= result["device_bytes"] > 0 and memory["changes"] >= 4 * (STEPS - 1), (memory, result))
    _, report, _ = traced(training / "12_prefetcher_emulated", *TRAINING)
    require(report["memory"][0]["changes"] == 0, report["memory"])  # Nothing is allocated in its steps.


def check_layers():
    ranges, _, _ = traced(training / "05_readback_emulated", *TRAINING, "--layers")
    first, last = "conv1 3x16x16 to 16x16x16, 3x3", "fc 64 to 10"
    for name, colour in ((first, "#59a14f"), (last, "#59a14f"), (f"gradients of {first}", "#3fb6b2"), (f"gradients of {last}", "#3fb6b2")):
        require(payloads(ranges, name)[:1] == [BATCH] and ranges[name][0]["color"] == colour, f"{name}: {list(ranges)}")
    forward = [name for name in ranges if " to " in name and not name.startswith("gradients of ")]
    backward = [name for name in ranges if name.startswith("gradients of ")]
    require(len(forward) == len(backward) == 10, f"resnet8 has 9 convolutions and a last layer, not {forward}")
    require(all(len(ranges[name]) == STEPS + WARMUP for name in forward), forward)
    require("layer2.0.conv1 16x16x16 to 32x8x8, 3x3" in ranges, list(ranges))
    options = [*SMALL, "--records", 40, "--steps", 3, "--warmup", 2, "--batches", 4]
    ranges, _, _ = traced(inference / "01_baseline_emulated", *options)
    require(len(ranges["read answers"]) == 5 and not any(" to " in name for name in ranges), list(ranges))
    ranges, _, _ = traced(inference / "01_baseline_emulated", *options, "--layers")
    require(payloads(ranges, first) == [4] * 5 and payloads(ranges, last) == [4] * 5, list(ranges))


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    check_training()
    check_layers()
