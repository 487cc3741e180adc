#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""images_test.py CASE TRAIN PROGRAMS MAKE_IMAGES PACK: training from JPEG files, with the emulated programs; a case is
one of the functions below.
"""

import json
import os
import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "support"))
from object_server import environment, serving
from programs import interrupt, require, run, tensors_of

train, programs, make_images, pack = (pathlib.Path(word).resolve() for word in sys.argv[2:6])
TINY = ["--width", 60, "--height", 44]
MODEL = ["--model", "resnet8", "--image-size", 16]


def make(out, *options):
    run([make_images, "--out", out, *TINY, *options])
    return pathlib.Path(out)


def losses_of(number, data, *options):
    """Of a rung of the ladder, for a few steps."""
    program = next(programs.glob(f"{number:02}_*_emulated"))
    run([program, *MODEL, "--batch", 8, "--steps", 5, "--warmup", 1, "--images", data, "--json", "result.json", *options])
    return json.loads(pathlib.Path("result.json").read_text())["losses"]


def accuracies(output):
    return [float(value) for value in re.findall(r"test accuracy ([0-9.]+) %", output)]


def learns():
    """The classes are learnt from crops, and judged on the centres of other files."""
    make("set", "--train", 1500, "--val", 200, "--classes", 2)
    output, _ = run([train, "--model", "resnet8", "--image-size", 24, "--images", "set", "--epochs", 6, "--batch", 25,
                     "--workers", 2])  # fmt: skip
    require(len(accuracies(output)) == 6, output)
    require(accuracies(output)[-1] >= 70, f"chance is 50 %: {output}")


def rungs():
    """T1 and T12 load by the same code, and have the same losses; T15 and T16 resize on the device, and have others,
    alike on one worker and on four, and alike without engines."""
    make("set", "--train", 40, "--val", 0)
    first = losses_of(1, "set")
    require(len(set(first)) == 6, first)
    for number in (2, 5, 12):
        require(losses_of(number, "set", "--precision", "fp32") == first, f"T{number}")
    decoded = losses_of(15, "set", "--workers", 1)
    require(losses_of(15, "set", "--workers", 4) == decoded, "T15 on four workers")
    require(losses_of(16, "set") == decoded, "T16 without engines")
    far = max(abs(a - b) / b for a, b in zip(decoded, first))
    require(decoded != first and far < 0.05, f"{decoded} {first}")


def beside():
    """What the input gives while one batch is trained again and again: the losses are of that batch alone. The CPU's
    share is found, where there are engines, and depths are set."""
    make("set", "--train", 40, "--val", 0)
    for number in (15, 16):
        program = next(programs.glob(f"{number:02}_*_emulated"))
        command = [program, *MODEL, "--batch", 8, "--steps", 8, "--warmup", 1, "--images", "set", "--json", "result.json"]
        for more in ([], ["--device-depth", 4]):
            output, _ = run([*command, "--input-apart", *more])
            result = json.loads(pathlib.Path("result.json").read_text())
            require(result["input_images_per_second"] > 0, output)
            require("the input beside it: " in output, output)
            require(result["losses"][-1] < result["losses"][0], f"the same batch is not learnt: {result['losses']}")
    usual = losses_of(16, "set")
    require(losses_of(16, "set", "--cpu-share", "auto", "--cpu-threads", 2, "--nvjpeg-decoders", 2) == usual, "auto")
    require(losses_of(16, "set", "--device-depth", 2) == usual, "another depth")


def stores():
    """A folder, and a packed file of it, have the same bytes; shards have the same files in another order."""
    folder = make("set", "--train", 40, "--val", 20)
    os.makedirs("packed")
    for part in ("train", "val"):
        run([pack, folder / part, "-o", f"packed/{part}.pack"])
    first = losses_of(15, "set")
    require(losses_of(15, "packed") == first, "packed")
    require(losses_of(15, "packed/train.pack") == first, "one packed file")
    make("shards", "--train", 40, "--val", 20, "--shards-of", 15)
    require(losses_of(15, "shards") != first, "another order has other batches")
    losses = {}
    for name in ("set", "packed", "shards"):
        output, _ = run([train, *MODEL, "--images", name, "--epochs", 1, "--batch", 20])
        require(len(accuracies(output)) == 1, output)
        losses[name] = output.splitlines()[1:]
    require([line.split(", ")[:2] for line in losses["set"]] == [line.split(", ")[:2] for line in losses["packed"]], losses)


def urls():
    """The same set at a server, as folders, with lists beside them or without, and as packed files: the same losses."""
    folder = make("set", "--train", 40, "--val", 20)
    first = losses_of(15, "set")
    os.makedirs("set/packed")
    for part in ("train", "val"):
        run([pack, folder / part, "-o", f"set/packed/{part}.pack"])
    with serving("set") as server:
        os.makedirs("home")
        os.environ.update(environment(server, pathlib.Path("home").resolve()))
        os.environ.pop("XDG_CACHE_HOME", None)
        for name in ("s3://bucket/", "s3://bucket/train/", "s3://bucket/packed/", f"{server}/bucket/packed/train.pack"):
            require(losses_of(15, name) == first, name)
        command = [train, *MODEL, "--epochs", 1, "--batch", 20, "--images"]
        lines = {name: run([*command, name])[0].splitlines()[1:] for name in ("set", "s3://bucket/", "s3://bucket/packed/")}
        results = [[line.split(", ")[:2] for line in told] for told in lines.values()]
        require(results[0] == results[1] == results[2], lines)
        _, error = run([*command, f"{server}/bucket/"], status=2)
        require("only folders of s3:// and gs:// can be read" in error, error)
        _, error = run([*command, "s3://bucket/train/"], status=2)
        require("there is nothing to evaluate with" in error, error)


def without_remote():
    _, error = run([train, *MODEL, "--images", "s3://bucket/", "--epochs", 1], status=2)
    require("built without penstock::remote" in error, error)


def broken():
    """A file that is no image ends the run, and is named; with --broken it is replaced, and listed at the end."""
    folder = make("set", "--train", 60, "--val", 20)
    victim = sorted(folder.glob("train/*/*.JPEG"))[7]
    victim.write_bytes(victim.read_bytes()[:200])
    other = sorted(folder.glob("val/*/*.JPEG"))[3]
    other.write_bytes(b"no image")
    command = [train, *MODEL, "--images", "set", "--epochs", 1, "--batch", 20]
    output, error = run(command, status=2)
    require(victim.name in error, error)
    output, _ = run([*command, "--broken", 2])
    require(re.search(r"1 broken files in the test set, left out:\n.*" + other.name, output), output)
    require(re.search(r"1 broken files in training, each replaced by another:\n.*" + victim.name, output), output)
    victim.unlink()
    (folder / "train" / victim.parent.name / victim.name).touch()
    output, error = run([*command], status=2)
    require(victim.name in error and "empty" in error, error)


def resume():
    """Interrupted and gone on, it comes to the same bits."""
    make("set", "--train", 80, "--val", 20)
    command = [train, *MODEL, "--images", "set", "--epochs", 2, "--batch", 10, "--checkpoint"]
    run([*command, "whole"])
    interrupt([*command, "part"], 100)
    run([*command, "part"])
    require(tensors_of(pathlib.Path("part")) == tensors_of(pathlib.Path("whole")), "other bits")
    make("other", "--train", 80, "--val", 20, "--seed", 2)
    _, error = run([train, *MODEL, "--images", "other", "--epochs", 2, "--batch", 10, "--checkpoint", "whole"], status=2)
    require("fingerprint" in error, error)


def mistakes():
    """Each is told with what to change."""
    folder = make("set", "--train", 30, "--val", 0)
    for program, options, word in (
        (train, ["--images", "none"], "none"),
        (train, ["--images", "set/train", "--epochs", 1], "val"),
        (train, ["--images", "set", "--data", "."], "--data"),
        (next(programs.glob("13_*_emulated")), ["--images", "set", "--batch", 8], "--images"),
        (next(programs.glob("14_*_emulated")), ["--images", "set", "--batch", 8], "--images"),
        (next(programs.glob("15_*_emulated")), ["--cache", ".", "--records", 50, "--batch", 8], "--images"),
        (next(programs.glob("15_*_emulated")), ["--images", "set", "--classes", 3, "--batch", 8], "label"),
        (next(programs.glob("15_*_emulated")), ["--images", "set", "--batch", 31], "31"),
        (next(programs.glob("16_*_emulated")), ["--images", "set", "--cpu-share", 2], "cpu-share"),
        (next(programs.glob("16_*_emulated")), ["--images", "set", "--cpu-share", "car"], "cpu-share"),
        (next(programs.glob("16_*_emulated")), ["--images", "set", "--synthetic", "--input-apart"], "--input-apart"),
        (next(programs.glob("12_*_emulated")), ["--images", "set", "--input-apart"], "--input-apart: T12 does not have it"),
        (next(programs.glob("13_*_emulated")), ["--cache", ".", "--records", 50, "--batch", 8, "--input-apart"], "--input-apart: T13 does not"),
        (next(programs.glob("12_*_emulated")), ["--images", "set", "--cpu-share", "auto"], "--cpu-share: T12 does not have it"),
        (next(programs.glob("15_*_emulated")), ["--images", "set", "--cpu-threads", 2], "--cpu-threads: T15 does not have it"),
        (next(programs.glob("15_*_emulated")), ["--images", "set", "--nvjpeg-decoders", 2], "--nvjpeg-decoders: T15 does not have it"),
        (next(programs.glob("12_*_emulated")), ["--images", "set", "--device-depth", 3], "--device-depth: T12 does not have it"),
    ):
        _, error = run([program, *MODEL, *options], status=2)
        require(word in error, f"{options}: {error}")
    (folder / "empty").mkdir()
    _, error = run([train, *MODEL, "--images", "set/empty"], status=2)
    require("empty" in error, error)


case = {function.__name__: function for function in (learns, rungs, beside, stores, urls, without_remote, broken, resume, mistakes)}[sys.argv[1]]
with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    case()
print(f"{case.__name__}: passed")
