#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rungs_test.py CASE PROGRAMS WEIGHTS PREPARE: what every rung of the inference ladder promises, with the emulated
programs in the folder PROGRAMS, a trained network's WEIGHTS and the program PREPARE; a case is one of the functions
below."""

import json
import os
import pathlib
import re
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "train"))
from programs import interrupt, require, run  # noqa: E402

programs, weights, prepare = (pathlib.Path(word).resolve() for word in sys.argv[2:5])
rungs = {path.name.split("_")[0]: path for path in sorted(programs.glob("[0-9][0-9]*_emulated"))}
SMALL = ["--image-size", 16, "--records", 40, "--workers", 2, "--cache", "."]
TRAINED = ["--model", "resnet8", "--weights", weights, *SMALL]
SIXTY = ["--batches", 4, "--warmup", 6, "--steps", 9]  # images, in requests of 4


def infer(rung, *options, environment=None):
    """The result, with the lines of the answers."""
    run([rungs[rung], *options, "--json", "result.json", "--answers", "answers.txt"],
        env={**os.environ, **(environment or {})})  # fmt: skip
    result = json.loads(pathlib.Path("result.json").read_text())
    return {**result, "lines": pathlib.Path("answers.txt").read_text().splitlines()}


def same(result, other, precise=True):
    for key in ("lines", "answers", "logits") if precise else ("lines", "answers"):
        require(result[key] == other[key], f"{result['rung']} and {other['rung']} differ in their {key}:\n"
                f"{result[key]}\n{other[key]}")  # fmt: skip


def check_answers(result, images):
    numbers, classes = zip(*(map(int, line.split()) for line in result["lines"]))
    require(numbers == tuple(range(images)), f"{result['rung']}: images {numbers}")
    require(len(set(classes)) > 1, f"a network that tells nothing apart: {classes}")
    # 40 records, again and again.
    require(all(classes[i] == classes[i - 40] for i in range(40, images)), f"{result['rung']}: {classes}")


def answers():
    """Every rung has the answers of the one before, bit for bit where precision and fusion are the same."""
    results = {rung: infer(rung, *TRAINED, *SIXTY) for rung in rungs}
    require(len(results) == 14, results.keys())
    check_answers(results["01"], 60)
    for rung, result in results.items():
        half = int(rung[:2]) >= 4
        require(result["precision"] == ("fp16" if half else "fp32"), result)
        require(result["images_per_second"] > 0 and result["compute_ms"] > 0 and result["load_ms"] >= 0, result)
        # Layers that are not fused round what lies between them.
        same(result, results["04a" if rung in ("04a", "04b") else "04" if half else "01"])
    require(results["04"]["logits"] != results["01"]["logits"], "fp16 has rounded nothing")
    for rung, result in results.items():
        if rung != "01":
            same(infer(rung, *TRAINED, *SIXTY, "--precision", "fp32"), results["01"])


def uint8():
    """Records that are decoded on the device give the answers of float images, bit for bit in fp32."""
    first = infer("01", *TRAINED, *SIXTY)
    check_answers(first, 60)
    for rung in ("05b", "07", "09"):
        result = infer(rung, *TRAINED, *SIXTY, "--uint8", "--precision", "fp32")
        require(result["uint8"], result)
        same(result, first)
        same(infer(rung, *TRAINED, *SIXTY, "--uint8"), infer(rung, *TRAINED, *SIXTY))


def mixed():
    """Contexts and batch sizes mixed, at random: each request has its own answer."""
    sizes = ["--batches", "2,5", "--requests", "5,2,3,1,4", "--warmup", 6, "--steps", 14]  # 60 images
    for precision in ("fp32", "fp16"):
        wanted = infer("04", *TRAINED, *SIXTY, "--precision", precision)
        check_answers(wanted, 60)
        for seed in range(1, 3):
            random = {"PENSTOCK_EMULATION": f"schedule=random,seed={seed}"}
            more = ["--precision", precision, "--contexts", 1 + seed % 3]
            result = infer("09", *TRAINED, *sizes, *more, environment=random)
            require(result["contexts"] == 1 + seed % 3 and result["batches"] == [2, 5], result)
            same(result, wanted)
            same(infer("08", *TRAINED, *SIXTY, *more, environment=random), wanted)
        same(infer("09", *TRAINED, *sizes, "--precision", precision, "--uint8", environment=random), wanted)


def sizes():
    """Large batches, and requests of different sizes: all of their logits come back."""
    large = ["--model", "resnet8", "--weights", weights, "--image-size", 8, "--records", 200, "--workers", 2,
             "--cache", ".", "--warmup", 2, "--steps", 1, "--contexts", 1, "--precision", "fp32"]  # fmt: skip
    wanted = infer("01", *large, "--batches", 130)
    require(len(wanted["lines"]) == 390, "not 390 images")
    same(infer("06", *large, "--batches", 130), wanted)
    same(infer("09", *large, "--batches", "60,130", "--requests", "129,130,60"),
         infer("09", *large, "--batches", "130", "--requests", "60,129,130"))  # fmt: skip


def free_loading():
    """Host memory that is filled once has few images, which are sent again and again; with loading, all come."""
    options = ["--model", "resnet8", "--weights", weights, "--image-size", 16, "--cache", ".", "--records", 400,
               "--workers", 1, "--contexts", 1, "--batches", 4, "--warmup", 2, "--steps", 60]
    for rung, blocks in (("03b", 5), ("07", 3), ("09", 3)):  # one worker's, and those on their way; or one and two slots
        for more, few in (["--free-loading"], True), ([], False):
            result = infer(rung, *options, *more)
            classes = [line.split()[1] for line in result["lines"]]
            kinds = len({tuple(classes[i : i + 4]) for i in range(0, len(classes), 4)})
            require(result["free_loading"] == few and (kinds <= blocks) == few, f"{rung} {more}: {kinds} kinds")


def watch():
    """--watch tells what the prefetcher waits for, and changes no answer."""
    line = r"^watched: \d+\.\d batches/s, .* \| GPU waits \d+ % \| \w+: \w+"
    for rung in ("05b", "06", "07", "08", "09"):
        first = infer(rung, *TRAINED, *SIXTY)
        _, errors = run([rungs[rung], *TRAINED, *SIXTY, "--watch", "--answers", "watched.txt"])
        require(re.search(line, errors, re.MULTILINE), errors)
        require(pathlib.Path("watched.txt").read_text().splitlines() == first["lines"], f"{rung}: other answers")


def prepared():
    """What `prepare` wrote is taken as it is, by every rung."""
    run([prepare, "--model", "resnet8", "--weights", weights, "--out", "int8", "--precision", "int8", "--batches", 4,
         "--image-size", 16, "--cache", ".", "--records", 40, "--test-records", 5, "--check", 0,
         "--calibration-images", 40])  # fmt: skip
    options = ["--prepared", "int8", "--records", 40, "--workers", 2, "--cache", ".", *SIXTY]
    first = infer("01", *options)
    check_answers(first, 60)
    require(first["precision"] == "int8" and first["image_size"] == 16 and first["model"] == "resnet8", first)
    for rung in ("03", "05a", "09"):
        same(infer(rung, *options), first)


def interrupted():
    """Ctrl-C ends a rung within the request; the answers that there are, are in order."""
    infer("01", *TRAINED, *SIXTY)  # makes the data set, of which a program tells its progress too
    for rung in ("01", "09"):
        long_run = [rungs[rung], *TRAINED, "--batches", 4, "--steps", 4000, "--answers", "part.txt"]
        interrupt(long_run, room=60)
        numbers = [int(line.split()[0]) for line in pathlib.Path("part.txt").read_text().splitlines()]
        require(numbers == list(range(len(numbers))) and 0 < len(numbers) < 16000, f"{rung}: {numbers}")


def linked():
    """A link for the answers stays, and the file that it leads to is replaced."""
    pathlib.Path("elsewhere").write_text("old")
    os.symlink("elsewhere", "answers.txt")
    result = infer("01", *TRAINED, *SIXTY)
    check_answers(result, 60)
    require(os.path.islink("answers.txt") and len(pathlib.Path("elsewhere").read_text().splitlines()) == 60, "no link")


def mistakes():
    """What is wrong is said, with exit status 2; what cannot be written, with 1."""
    pathlib.Path("text").write_text("no model at all")
    wrong = ((["--batches", 0], "--batches"), (["--steps", 0], "--steps"), (["--warmup", -1], "--warmup"),
             (["--precision", "fp8"], "fp8"), (["--precision", "int8"], "int8"), (["--model", "resnet9"], "resnet9"),
             (["--data", "nowhere"], "nowhere"), (["--weights", "nowhere"], "nowhere"), (["--weights", "text"], "text"),
             (["--prepared", "text", "--model", "resnet8"], "excludes"), (["--workers", 0], "--workers"),
             (["--image-size", 4], "--image-size"), (["--requests", "2,5"], "--requests"),
             (["--answers", ""], "--answers: the value is empty"), (["--json="], "--json: the value is empty"),
             (["--requests", "2,,5"], "an entry of 2,,5 is empty"), (["--contexts", 0], "--contexts"), (["--steps", 1 << 30], "--steps"), (["--no-such-option"], "--no-such-option"))  # fmt: skip
    few = ["--batches", 4, "--records", 40, "--cache", "."]
    for rung in ("01", "09"):
        for words, why in wrong:
            _, errors = run([rungs[rung], *(few[2:] if "--batches" in words else few), *words], status=2)
            require(why in errors, f"{rung} {words}: {errors}")
        for words, why in ((["--prepared", "text"], "text"), *([(["--contexts", 2], "--contexts: I1 has one")] if rung == "01" else [])):
            _, errors = run([rungs[rung], *few, *words], status=2)
            require(why in errors, errors)
        for option in ("--answers", "--json"):
            _, errors = run([rungs[rung], *few, "--image-size", 16, "--steps", 1, option, "no/such/file"], status=1)
            require("no/such/file" in errors, errors)
        for one, other in (("--weights", "--json"), ("--prepared", "--answers"), ("--answers", "--json"),
                           ("--weights", "--plans")):  # fmt: skip
            _, errors = run([rungs[rung], *few, one, "text", other, "text"], status=2)
            require(f"{one} and {other} are the same file" in errors, errors)
        output, _ = run([rungs[rung], "--help"])
        require("--uint8" in output and "--answers" in output, output)
    _, errors = run([rungs["03"], "--batches", "4,8", *few[2:]], status=2)
    require("I3 has one batch size" in errors, errors)
    _, errors = run([rungs["05a"], "--watch", *few], status=2)
    require("I5a has no prefetcher" in errors, errors)
    _, errors = run([rungs["05a"], "--uint8", *few], status=2)
    require("I5a copies images" in errors, errors)


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    globals()[sys.argv[1]]()
