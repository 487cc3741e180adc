#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""video_test.py CASE PROGRAM FFMPEG [PENSTOCK_TRACE]: T17, training from clips of video files, with the emulated program; a
case is one of the functions below."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from programs import interrupt, require, run

program, ffmpeg = pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
tracer = pathlib.Path(*sys.argv[4:5]).resolve()
USUAL = {"--model": "resnet8", "--image-size": 16, "--videos": "set", "--frames": 4, "--batch": 16, "--clips-per-file": 4,
         "--steps": 5, "--warmup": 1, "--workers": 2}  # fmt: skip


def make(folder, *colours, files=2):
    """Videos of one colour with noise, in a folder for each colour."""
    for colour in colours:
        place = pathlib.Path(folder, colour)
        place.mkdir(parents=True)
        for number in range(files):
            run([ffmpeg, "-v", "error", "-nostdin", "-f", "lavfi", "-i", f"color={colour}:size=64x48:rate=25:duration=1",
                 "-vf", f"noise=alls=20:allf=t:all_seed={number}", "-c:v", "libx264", place / f"{number}.mp4"])  # fmt: skip


def command(*flags, **changes):
    """The usual options, with other values by their names: batch=32; None leaves an option out."""
    options = {**USUAL, **{"--" + name.replace("_", "-"): value for name, value in changes.items()}}
    return [program, *(word for name, value in options.items() if value is not None for word in (name, value)), *flags]


def result_of(*flags, **changes):
    run(command(*flags, json="result.json", **changes))
    return json.loads(pathlib.Path("result.json").read_text())


def losses_of(*flags, **changes):
    return result_of(*flags, **changes)["losses"]


def workers():
    """The losses are the same for any number of workers and slots, and without engines; but not for other clips."""
    make("set", "red", "blue")
    first = losses_of(workers=1)
    require(len(set(first)) == 6, first)
    for changes in ({"workers": 4}, {"workers": 4, "device_depth": 2}, {"video_engines": "none"}, {"video_engines": "if_possible"}):
        require(losses_of(**changes) == first, changes)
    for changes in ({"seed": 2}, {"clips_per_file": 5}, {"frames": 8}):
        require(losses_of(**changes) != first, changes)


def learns():
    """The class of a clip is its folder, and all its frames have it: colours are learnt. What does not depend on the
    folder is not."""
    make("set", "red", "blue", "green")
    make("made", "gray", files=6)
    for number in range(6):
        place = pathlib.Path("same", str(number % 3))
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(f"made/gray/{number}.mp4", place / f"{number}.mp4")
    colours = losses_of(steps=40, clips_per_file=8)
    require(sum(colours[-8:]) / 8 < 0.5 * sum(colours[:4]) / 4, colours)
    same = losses_of(steps=40, clips_per_file=8, videos="same")
    require(sum(same[-8:]) / 8 > 0.8, f"there is nothing to learn: {same}")


def folders():
    """train/ is read where there is one; without folders each file is a class; --classes may be more."""
    make("set/train", "red", "blue")
    losses = losses_of()
    require(losses_of(videos="set/train") == losses, "train")
    require(losses_of(videos="set/train", classes=7)[0] > losses[0], "a loss of more classes is larger")
    os.mkdir("flat")
    for name in ("a.mp4", "b.mp4"):
        shutil.copy("set/train/red/0.mp4" if name == "a.mp4" else "set/train/blue/0.mp4", f"flat/{name}")
    pathlib.Path("flat/notes.txt").touch()
    require(losses_of(videos="flat", steps=40)[-1] < 0.5, "each file is a class")


def synthetic():
    """One batch stays on the device: it is learnt by heart. --input-apart says what the input gives beside that."""
    make("set", "gray", "white")
    for flag in ("--synthetic", "--input-apart"):
        result = result_of(flag, steps=20)
        require(result["losses"][-1] < 0.5 * result["losses"][0], f"{flag}: {result['losses']}")
        require((result["input_images_per_second"] > 0) == (flag == "--input-apart"), result)
        require(result["synthetic"] == (flag == "--synthetic") and result["images_per_sample"] == 4, result)


def epochs():
    """A step takes whole clips: an epoch of 16 clips is 4 steps of 4; the same command goes on after Ctrl-C with --load."""
    make("set", "red", "blue")
    require(len(losses_of(epochs=2, steps=None)) == 1 + 2 * 4, "steps of two epochs")
    interrupt([*command("--save", "part", steps=1000)], 100)
    require(len(losses_of("--load", "part")) == 6, "from a checkpoint")


def allocation():
    """A step allocates nothing, nor does a worker."""
    make("set", "red", "blue")
    traced = [tracer, "--capture-range", "--quiet", "--fail-on", "allocation", "--out", "trace", "--"]
    for schedule in ("eager", "lazy"):
        run([*traced, *command(steps=20, warmup=10)], env={**os.environ, "PENSTOCK_EMULATION": f"schedule={schedule}"})


def broken():
    """A file that is no video ends the run, and is named; with --broken another batch is trained in its place, and it is
    named at the end."""
    make("set", "red", "blue")
    victim = pathlib.Path("set/red/1.mp4")
    victim.write_bytes(victim.read_bytes()[:600])
    usual = command(steps=8, clips_per_file=2, frames=16, batch=16, warmup=0)
    _, error = run(usual, status=2)
    require("set/red/1.mp4" in error, error)
    output, _ = run([*usual, "--broken", 9])
    require("another batch took the place of one" in output and "set/red/1.mp4" in output, output)
    _, error = run([*usual, "--broken", 0], status=2)
    require("set/red/1.mp4" in error, error)


def mistakes():
    """Each is told with what to change."""
    make("set", "red", "blue")
    for folder in ("empty", "hollow/red"):
        os.makedirs(folder)
    for changes, words in (
        ({"videos": "none"}, "none: there is no such folder of videos"),
        ({"videos": "set/red/0.mp4"}, "there is no such folder of videos"),
        ({"videos": "empty"}, "has neither directories nor files .mp4"),
        ({"videos": "hollow"}, "hollow/red: a class without files"),
        ({"videos": None, "cache": ".", "records": 50}, "name them with --videos"),
        ({"images": "set"}, "--images excludes --videos"),
        ({"data": "set"}, "--data"),
        ({"batch": 18}, "18 images are no whole number of clips of 4 frames: take 20"),
        ({"batch": 128}, "a batch of 32 is larger than the data set of 16 clips: see --clips-per-file"),
        ({"classes": 1}, "--classes must not be smaller"),
        ({"frames": 0}, "--frames"),
        ({"clips_per_file": 0}, "--clips-per-file"),
        ({"video_engines": "all"}, "--video-engines"),
        ({"broken": -1}, "--broken"),
    ):
        _, error = run(command(**changes), status=2)
        require(words in error, f"{changes}: {error}")
    _, error = run(command(video_engines="required"), status=1)
    require("no engine of the GPU decodes video" in error, error)
    rungs = program.parent.parent / "train"
    for name, option in (("12_prefetcher", "--videos"), ("15_images", "--frames"), ("16_hardware_decoder", "--broken")):
        if (rung := rungs / f"{name}_emulated").exists():
            done = subprocess.run([rung, option, "1"], capture_output=True, text=True)
            require(done.returncode == 2 and f"{option}: T{name[:2]} does not have it" in done.stderr, done)


case = {function.__name__: function
        for function in (workers, learns, folders, synthetic, epochs, allocation, broken, mistakes)}[sys.argv[1]]  # fmt: skip
with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    case()
print(f"{case.__name__}: passed")
