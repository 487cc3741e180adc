# SPDX-License-Identifier: Apache-2.0
"""prepare, as a person runs it: what it writes and says, and what it says of mistakes.

prepare_test.py PREPARE WEIGHTS
"""

import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
from programs import with_value  # noqa: E402

prepare, weights = sys.argv[1:3]
few = ["--records", "200", "--test-records", "100", "--calibration-images", "100"]


def run(directory, *arguments, model="resnet8", check=0):
    return subprocess.run(
        [prepare, "--model", model, "--cache", str(directory), "--check", str(check), *few, *arguments],
        capture_output=True, text=True, timeout=300)


def header_of(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + size])


def fails(result, *texts, status=2):
    assert result.returncode == status, result
    for text in texts:
        assert text in result.stdout + result.stderr, (text, result)


with tempfile.TemporaryDirectory() as name:
    directory = pathlib.Path(name)
    out = directory / "resnet8.prepared"

    done = run(directory, "--weights", weights, "--out", out, "--precision", "int8", "--batches", "4,1",
               check=100)
    assert done.returncode == 0, done
    assert "9 convolutions" in done.stdout and "100 test images" in done.stdout, done.stdout
    agreement = float(done.stdout.split("test images: ")[1].split()[0])
    assert agreement >= 95, done.stdout
    assert "100/100 calibration images" in done.stderr, done.stderr
    header = header_of(out)
    notes = json.loads(header["__metadata__"]["penstock.inference"])
    assert notes["precision"] == "int8" and notes["format"] == "nhwc", notes
    assert notes["batches"] == [1, 4] and notes["image"] == [3, 32, 32], notes
    assert header["conv1.weight"]["dtype"] == "F32", "the first convolution stays in floats"
    assert header["layer3.0.conv2.weight"]["dtype"] == "I8"
    first = out.read_bytes()

    # The same again is the same, bit for bit; nothing else is left in the directory.
    assert run(directory, "--weights", weights, "--out", out, "--precision", "int8", "--batches",
               "4,1").returncode == 0
    assert out.read_bytes() == first
    assert not list(directory.glob("*.partial*"))

    fp32 = directory / "fp32.prepared"
    assert run(directory, "--weights", weights, "--out", fp32, "--precision", "fp32").returncode == 0
    assert json.loads(header_of(fp32)["__metadata__"]["penstock.inference"])["format"] == "nchw"

    # Mistakes.
    fails(run(directory, "--weights", weights), "--out")
    fails(run(directory, "--weights", directory / "none", "--out", out), "does not exist")
    fails(run(directory, "--weights", weights, "--out", out, model="resnet9"), "resnet9", "resnet50")
    fails(run(directory, "--weights", weights, "--out", out, model="resnet20"), "layer1.1.conv1.weight")
    fails(run(directory, "--weights", weights, "--out", out, "--precision", "int4"), "int4")
    fails(run(directory, "--weights", weights, "--out", out, "--batches", "0"), "--batches")
    fails(run(directory, "--weights", weights, "--out", out, "--precision", "int8", "--format", "nchw"), "nhwc")
    fails(run(directory, "--weights", fp32, "--out", out), "bn1.weight")
    fails(run(directory, "--weights", weights, "--out", directory / "none" / "out"), "none/out", status=1)
    mine = directory / "mine.plans"
    mine.write_bytes(pathlib.Path(weights).read_bytes())
    (directory / "link").symlink_to(mine)
    for same in (mine, directory / "." / mine.name, directory / "link", directory / "mine"):
        fails(run(directory, "--weights", mine, "--out", same), "mine.plans has the weights", "name another --out")
    assert mine.read_bytes() == pathlib.Path(weights).read_bytes()
    bad = directory / "bad.safetensors"

    def fails_with(values, *texts, status=2):
        data = pathlib.Path(weights).read_bytes()
        for tensor, value in values.items():
            data = with_value(data, tensor, value)
        bad.write_bytes(data)
        fails(run(directory, "--weights", bad, "--out", out, "--precision", "fp32", check=100), *texts, status=status)

    fails_with({"conv1.weight": math.nan}, '"conv1.weight" has a value that is not finite')
    fails_with({"bn1.running_mean": math.inf}, '"bn1.running_mean" has a value that is not finite')
    fails_with({"layer2.0.bn1.running_var": -1.0}, "layer2.0.bn1.running_var of channel 0")
    fails_with({"conv1.weight": 1e30, "bn1.weight": 1e30}, "conv1.weight of channel 0 is not finite")
    # Each is finite, and what the network makes of them is not: nothing can be said of agreement.
    fails_with({"bn1.weight": 1e30, "layer1.0.bn1.weight": 1e30}, "the logits of image 0 are not finite", status=1)
    assert out.read_bytes() == first, "a mistake leaves what is there as it was"

    # Links stay, and what they lead to is replaced; what is no regular file is refused.
    elsewhere = directory / "elsewhere"
    elsewhere.mkdir()
    for end in ("", ".plans"):
        (directory / f"linked{end}").symlink_to(elsewhere / f"model{end}")
    int8 = ("--precision", "int8", "--batches", "4,1")
    assert run(directory, "--weights", weights, "--out", directory / "linked", *int8).returncode == 0
    assert (directory / "linked").is_symlink() and (elsewhere / "model").read_bytes() == first
    assert not (directory / "linked.plans").exists() or (directory / "linked.plans").is_symlink()
    os.mkfifo(directory / "pipe")
    fails(run(directory, "--weights", weights, "--out", directory / "pipe", *int8), "pipe is no regular file")
    assert (directory / "pipe").is_fifo() and not (directory / "pipe.plans").exists()

    # A bit that is another in the weights is found.
    good = pathlib.Path(weights).read_bytes()
    data = 8 + struct.unpack("<Q", good[:8])[0]
    for place in range(data, len(good), (len(good) - data) // 8):
        damaged = bytearray(good)
        damaged[place] ^= 1
        bad.write_bytes(damaged)
        fails(run(directory, "--weights", bad, "--out", directory / "other"), "bad.safetensors: is damaged")
    assert not (directory / "other").exists()

    fails(run(directory, "--weights", "", "--out", out), "--weights: the value is empty")
    fails(run(directory, "--weights", weights, "--out", ""), "--out: the value is empty")
    fails(run(directory, "--weights", weights, "--out", out, "--batches", "1,,4"), "an entry of 1,,4 is empty")
