#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ladder_test.py LADDER PROGRAMS: runs the inference ladder, briefly: its results, table, picture (where Python has
matplotlib) and answers; and what it says when rungs answer differently, fail, or are not there."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "train"))
from programs import require  # noqa: E402

ladder, programs = (str(pathlib.Path(word).resolve()) for word in sys.argv[1:3])
SMALL = ["--image-size", "16", "--steps", "3", "--warmup", "4", "--records", "40", "--cache", "."]
RUNGS = ["I1", "I2", "I3", "I3b", "I4a", "I4b", "I4c", "I4", "I5a", "I5b", "I6", "I7", "I8", "I8u", "I9", "I9u"]


def run_ladder(*options, status=0, folder=programs):
    command = [sys.executable, ladder, "--programs", folder, "--out", ".", "--quick", *options, "--", *SMALL]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    require(done.returncode == status, f"exit status {done.returncode}, not {status}\n{done.stdout}")
    return done.stdout


def check_results(text):
    results = json.loads(pathlib.Path("ladder.json").read_text())
    require([result["rung"] for result in results] == RUNGS, results)
    for result in results:
        require(result["emulated"] and result["images_per_second"] > 0 and result["batch_ms"] > 0, result)
        require(result["compute_ms"] > 0 and result["device_bytes"] > 0, result)
        require(result["bound"] in ("bus", "compute") and result["bound_ms"] > 0, result)
        require(result["uint8"] == result["rung"].endswith("u"), result)
        row = next(line for line in text.splitlines() if line.startswith(f"{result['rung']} "))
        require(result["name"] in row and f"{result['images_per_second']:.1f}" in row, row)
        require(f" {result['device_bytes'] / 2**20:.1f}  {result['bound']} " in row, row)
        lines = pathlib.Path(f"answers-{result['rung']}.txt").read_text().splitlines()
        require(len(lines) == 7 * 16 if not result["rung"].startswith("I9") else len(lines) == 4 * 4 + 3 * 16, lines)
    memory = {result["rung"]: result["device_bytes"] for result in results}
    require(memory["I8"] > memory["I7"] >= memory["I4"], memory)  # Each context has activations and graphs of its own.
    logits = {result["rung"]: result["logits"] for result in results}
    require(logits["I1"] == logits["I2"] == logits["I3"] == logits["I3b"] != logits["I4a"], logits)
    require(logits["I4a"] == logits["I4b"] and logits["I4c"] == logits["I4"], logits)
    require(len({logits[rung] for rung in ("I4", "I5a", "I5b", "I6", "I7", "I8", "I8u")}) == 1, logits)
    require("EMULATED" in text and "NOT THE SAME" not in text and "+18.3" in text and "+119.7" in text, text)
    after = {result["rung"]: result["after"] for result in results}
    require(after["I3b"] == "I3" and after["I4a"] == "I3b" and after["I8u"] == "I8" and after["I1"] == "", after)
    return results


def check_picture(text, results):
    if importlib.util.find_spec("matplotlib") is None:
        require("no picture" in text and not pathlib.Path("ladder.svg").exists(), text)
        return
    elements = xml.etree.ElementTree.parse("ladder.svg").iter()
    texts = [element.text for element in elements if element.tag.endswith("}text")]
    for result in results:
        require(any(result["name"] in (text or "") for text in texts), f"{result['name']} is not in {texts}")


def check_peer():
    """PyTorch's images/s stand beside the rungs that have measured the same: in fp32 eager's, else the best."""
    same = {"model": "resnet8", "image_size": 16, "batch": 16}
    peers = [{**same, "mode": "eager", "bus_images_per_second": 1111.5},
             {**same, "mode": "half", "bus_images_per_second": 2222.5},
             {**same, "mode": "max_autotune", "failed": "late"},
             {**same, "batch": 8, "mode": "half", "bus_images_per_second": 3333.5}]  # fmt: skip
    pathlib.Path("peer.json").write_text(json.dumps(peers))
    text = run_ladder("--only", "I1,I4,I9", "--peer", "peer.json")
    for rung, speed in (("I1", " 1111.5 "), ("I4", " 2222.5 "), ("I9", None)):
        row = next(line for line in text.splitlines() if line.startswith(f"{rung} "))
        require(speed in row if speed else "2222.5" not in row, text)
    require("PyTorch" in text and "3333.5" not in text, text)


def disguise(name, text):
    """A folder with all programs, but `name` is this script."""
    folder = pathlib.Path("disguised")
    folder.mkdir(exist_ok=True)
    for program in pathlib.Path(programs).glob("[0-9]*_emulated"):
        (folder / program.name).unlink(missing_ok=True)
        (folder / program.name).symlink_to(program)
    (folder / name).unlink()
    (folder / name).write_text(text)
    os.chmod(folder / name, 0o755)
    return str(folder)


def check_troubles():
    """Rungs that answer differently, or fail, are told by name."""
    wrong = f"""#!{sys.executable}
import pathlib, subprocess, sys
status = subprocess.run(["{programs}/02_arena_emulated", *sys.argv[1:]]).returncode
answers = pathlib.Path(sys.argv[sys.argv.index("--answers") + 1])
answers.write_text(answers.read_text().replace("\\n7 ", "\\n7 1"))
sys.exit(status)
"""
    text = run_ladder("--only", "I1,I2,I3", status=1, folder=disguise("02_arena_emulated", wrong))
    require("NOT THE SAME ANSWERS: I1 and I2\n" in text, text)
    failing = disguise("03_pinned_emulated", "#!/bin/sh\necho broken >&2\nexit 3\n")
    text = run_ladder("--only", "I1,I3", status=1, folder=failing)
    require("exit status 3" in text and "broken" in text and "failed: I3" in text, text)
    require("no rung I10" in run_ladder("--only", "I10", status=1), "I10")
    require("no 01_baseline_emulated" in run_ladder(status=1, folder="nowhere"), "nowhere")


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    output = run_ladder()
    check_picture(output, check_results(output))
    check_peer()
    check_troubles()
