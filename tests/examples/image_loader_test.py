#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/images/image_loader with each decoder, over a folder, shards and a packed file; and mistakes.

Use: image_loader_test.py IMAGE_LOADER MAKE_IMAGES PENSTOCK_PACK
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

LOADER, MAKE, PACK = sys.argv[1:]


def run(*command, status=0):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, (command, done)
    return done.stdout + done.stderr


with tempfile.TemporaryDirectory() as scratch:
    folder, shards = pathlib.Path(scratch, "folder"), pathlib.Path(scratch, "shards")
    pack, result = pathlib.Path(scratch, "train.pack"), pathlib.Path(scratch, "result.json")
    run(MAKE, "--out", folder, "--train", 40, "--val", 0)
    run(MAKE, "--out", shards, "--train", 40, "--val", 0, "--shards-of", 40)
    run(PACK, folder / "train", "-o", pack)
    short = ["--batch", 8, "--image-size", 32, "--workers", 2, "--seconds", 0.1, "--warmup", 0, "--json", result]
    for files, options in (
        (folder / "train", ["--decoder", "cpu"]),
        (folder / "train", ["--decoder", "engines", "--precision", "uint8", "--order", "nchw"]),
        (next(shards.glob("*.tar")), ["--decoder", "both", "--chunk", 3]),
        (pack, ["--decoder", "both", "--cpu-share", 0.5, "--cpu-threads", 2, "--nvjpeg-decoders", 2, "--blocking"]),
    ):
        result.unlink(missing_ok=True)
        told = run(LOADER, files, *short, *options)
        found = json.loads(result.read_text())
        assert re.match(r"[1-9][0-9]* images/s, ", told), told
        assert found["images_per_second"] > 0 and found["cpu_cores"] > 0, found
        assert ("by the CPU: 1.000" in told) == ("cpu" not in options), told  # There are no engines.
        assert told.count("since there is no engine: ") == ("cpu" not in options), told
    assert "lower --batch" in run(LOADER, folder / "train", "--batch", 41, status=2)
    assert "fp16" in run(LOADER, folder / "train", "--precision", "fp16", status=2)
    assert "cpu-share" in run(LOADER, folder / "train", "--cpu-share", "nan", status=2)
    for decoder, option in (("engines", "--cpu-share"), ("cpu", "--cpu-share"), ("cpu", "--cpu-threads"), ("cpu", "--nvjpeg-decoders"),
                            ("cpu", "--chunk"), ("cpu", "--lanes"), ("cpu", "--device-depth")):  # fmt: skip
        told = run(LOADER, folder / "train", "--decoder", decoder, option, 1 if option == "--cpu-share" else 2, status=2)
        assert f"{option}: --decoder {decoder} does not use it" in told, told
    assert "none" in run(LOADER, folder / "none", status=1)
    broken = sorted(folder.glob("train/*/*"))[7]
    broken.write_bytes(b"no image")
    for decoder in ("cpu", "engines"):
        assert broken.name in run(LOADER, folder / "train", *short, "--decoder", decoder, status=1)
    with open("/dev/full", "w") as full:
        lost = subprocess.run([LOADER, pack, *map(str, short)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=300)
    assert lost.returncode == 1 and "standard output" in lost.stderr, lost
print("passed")
