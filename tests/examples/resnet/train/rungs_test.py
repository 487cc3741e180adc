#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rungs_test.py CASE PROGRAMS RUNGS: what every rung promises, on tiny data sets, with the emulated programs in the
folder PROGRAMS; a case is one of the functions below; RUNGS, as 1,5, are those that are interrupted. That all rungs
have the same losses is ladder_test.py's.
"""

import json
import math
import os
import pathlib
import re
import struct
import sys
import tempfile

from programs import SMALL, header_of, interrupt, notes_of, require, run, tensors_of, without_checksum

programs = pathlib.Path(sys.argv[2]).resolve()
rungs = sorted(path for path in programs.glob("[0-9][0-9]*_emulated") if int(path.name[:2]) <= 14)  # others read images
FP32 = ["--precision", "fp32"]  # From T8 on the rungs take fp16, and come to other bits.
OPTIONS = [*SMALL, "--batch", 8, "--records", 80, "--warmup", 1]
STEPS = ["--steps", 4]


def rung(number):
    """T1 is rung(1)."""
    return next(path for path in rungs if path.name.startswith(f"{number:02}_"))


def result_of(program, *options):
    run([program, *OPTIONS, *STEPS, *options, "--json", "result.json"])
    return json.loads(pathlib.Path("result.json").read_text())


def save_and_load():
    """What one rung saves another goes on from, and all that do come to the same, bit for bit."""
    first = result_of(rung(1), "--save", "a")
    require(notes_of(pathlib.Path("a"))["step"] == 5, "not the five steps that were taken")
    results = {}
    for number in (1, 2, 5, 11, 14):
        results[number] = result_of(rung(number), *FP32, "--load", "a", "--save", f"b{number}")
        saved = pathlib.Path(f"b{number}")
        require(notes_of(saved)["step"] == 10, f"T{number}: not ten steps in all")
        require(tensors_of(saved) == tensors_of(pathlib.Path("b1")), f"T{number} has come to other bits than T1")
    losses = results[1]["losses"]
    require(all(result["losses"] == losses for result in results.values()), results)
    require(losses[0] != first["losses"][0], "the weights are not those that were loaded")
    again = result_of(rung(3), "--load", "b14")
    require(all(map(math.isfinite, again["losses"])) and again["losses"] != losses, again)


def synthetic():
    """One batch that lies on the device: it is learnt by heart, by every rung alike."""
    results = [result_of(program, *FP32, "--synthetic") for program in (rung(1), rung(12), rung(14))]
    for result in results:
        require(result["synthetic"] and result["images_per_second"] > 0, result)
        require(result["losses"] == results[0]["losses"], results)
    losses = results[0]["losses"]
    require(len(set(losses)) == len(losses) and losses[-1] < losses[0], f"nothing is learnt: {losses}")


def exhaustive():
    """--exhaustive makes T6 and all after it time every plan, as T7b does; those before take cuDNN's guess."""
    for program in rungs:
        number = int(program.name[:2])
        for option, plans in ((["--exhaustive"], "exhaustive"), ([], "timed")):
            result = result_of(program, *option)
            plans = "exhaustive" if program.name.startswith("07b_") else plans if number >= 6 else "heuristic"
            require(result["plans"] == plans, f"{program.name}: {result['plans']}")


def progress():
    """Images a second and the loss, while it runs and at the end."""
    for program in (rung(1), rung(14)):
        output, errors = run([program, *OPTIONS, "--steps", 60])
        require(re.search(r"^\d+/61 steps: \d+ images/s, loss \d+\.\d{4}$", errors, re.MULTILINE), errors)
        require(re.search(r"^\d+\.\d images/s; a step .* idle \d+\.\d %$", output, re.MULTILINE), output)
        require(re.search(r"^memory of the device: \d+\.\d MiB$", output, re.MULTILINE), output)
        require(re.search(r"^loss \d+\.\d{4}$", output, re.MULTILINE), output)


def watch():
    """--watch tells what the prefetcher waits for, in place of the progress, and changes no loss."""
    line = r"^watched: \d+\.\d batches/s, .* \| GPU waits \d+ % \| \w+: \w+"
    for program in (rung(12), rung(14)):
        _, errors = run([program, *OPTIONS, *STEPS, "--watch", "--json", "watched.json"])
        require(re.search(line, errors, re.MULTILINE) and "steps:" not in errors, errors)
        losses = json.loads(pathlib.Path("watched.json").read_text())["losses"]
        require(losses == result_of(program)["losses"], losses)
    for program, options in ((rung(11), []), (rung(12), ["--synthetic"])):
        _, errors = run([program, *OPTIONS, *STEPS, "--watch", *options], status=2)
        require("no prefetcher" in errors, errors)


def interrupted():
    """Ctrl-C ends a rung within the step, with the checkpoint that was asked for."""
    result_of(rung(1))  # makes the data set
    for number in map(int, sys.argv[3].split(",")):
        long_run = [rung(number), *OPTIONS, "--steps", 1000]
        output = interrupt([*long_run, "--save", "part"], room=60)
        require("saved part" in output, output)
        steps = notes_of(pathlib.Path("part"))["step"]
        require(0 < steps < 1001, f"T{number}: {steps} steps")
        result_of(rung(number), "--load", "part")
        pathlib.Path("part").unlink()
        interrupt([*long_run, "--synthetic"], room=60)


def diverged():
    """With weights that are too large, every step is skipped whatever the loss scale: the run ends, says why, and
    writes no checkpoint. Without a loss scale it ends at the first loss."""
    result_of(rung(1), "--save", "weights")
    data = bytearray(without_checksum(pathlib.Path("weights").read_bytes()))
    header, end = header_of(bytes(data))
    first, last = header["fc.weight"]["data_offsets"]
    data[end + first : end + last] = struct.pack("<f", 3e38) * ((last - first) // 4)
    pathlib.Path("weights").write_bytes(data)
    for program in (rung(1), rung(14)):
        command = [program, *OPTIONS, "--steps", 40, "--load", "weights", "--save", "bad"]
        _, errors = run([*command, "--precision", "fp16"], status=1)
        require("10 steps in a row, up to step 9, were skipped" in errors and "--rate" in errors, errors)
        _, errors = run([*command, "--precision", "fp32"], status=1)
        require(re.search("the loss of step 0 is -?(nan|inf): lower the learning rate", errors), errors)
        require(not pathlib.Path("bad").exists(), "a checkpoint was written")


def rate():
    """--rate decides what is learnt; a step that is skipped is said."""
    results = [result_of(rung(5), *option) for option in ([], ["--rate", 0.05], ["--rate", 0.05])]
    require(results[1]["losses"] == results[2]["losses"] != results[0]["losses"], results)
    require(all(result["skipped_steps"] == 0 for result in results), results)


def mistakes():
    """What is wrong is said, with exit status 2; what cannot be written, with 1."""
    pathlib.Path("text").write_text("no checkpoint at all")
    wrong = ((["--batch", 0], "--batch"), (["--steps", 0], "--steps"), (["--warmup", -1], "--warmup"),
             (["--batch", 81], "a batch of 81 is larger than the data set of 80"), (["--precision", "fp8"], "fp8"),
             (["--model", "resnet9"], "resnet9"), (["--data", "nowhere"], "nowhere"), (["--load", "nowhere"], "nowhere"),
             (["--load", "text"], "text"), (["--profile", "3"], "3 is not START:COUNT"),
             (["--profile", "3:0"], "3:0 is not START:COUNT"), (["--profile", "-1:2"], "START:COUNT"),
             (["--profile", "1:2x"], "START:COUNT"), (["--workers", 0], "--workers"), (["--rate", -1], "--rate"), (["--image-size", 4], "--image-size"),
             (["--no-such-option"], "--no-such-option"), (["--rate", "nan"], "--rate"),
             (["--steps", 1 << 30], "--steps"), (["--warmup", 1 << 30], "--warmup"), (["--seed", -1], "--seed"),
             (["--epochs", 1 << 20], "1000000 at most"))  # fmt: skip
    for program in (rung(1), rung(14)):
        for words, why in wrong:
            _, errors = run([program, "--image-size", 16, "--records", 80, "--cache", ".", "--batch=8", *words]
                            if "--batch" not in words else [program, "--records", 80, "--cache", ".", *words], status=2)  # fmt: skip
            require(why in errors, f"{program.name} {words}: {errors}")
        for option in ("--save", "--json"):
            _, errors = run([program, *OPTIONS, "--steps", 1_000_000, option, "no/such/folder"], status=1)
            require("no/such/folder" in errors and "steps" not in errors, errors)  # before the first step
        for one, other in (("--save", "--json"), ("--save", "--plans"), ("--plans", "--json"), ("--load", "--json")):
            _, errors = run([program, *OPTIONS, *STEPS, one, "text", other, "./text"], status=2)
            require(f"{one} and {other} are the same file" in errors, errors)
        require(pathlib.Path("text").read_text() == "no checkpoint at all", "it is written over")
        output, _ = run([program, "--help"])
        require("--exhaustive" in output and "T6" in output, output)


with tempfile.TemporaryDirectory() as scratch:
    require(len(rungs) == 23, f"{len(rungs)} rungs in {programs}")
    os.chdir(scratch)
    globals()[sys.argv[1]]()
