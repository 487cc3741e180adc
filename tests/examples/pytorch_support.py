# SPDX-License-Identifier: Apache-2.0
"""What the tests of examples/pytorch share."""

import pathlib
import subprocess
import sys


def raises(kind, call, text=""):
    """`call` raises a `kind` whose message has `text` in it."""
    try:
        call()
    except kind as error:
        assert text in str(error), (text, str(error))
        return
    raise AssertionError(f"{call} raised no {kind.__name__}")


def make_images(program, scratch, *options):
    """The folder of a training set of images of 120 x 90, made below `scratch`."""
    data = pathlib.Path(scratch, "data")
    subprocess.run([program, "--out", data, "--val", "0", "--width", "120", "--height", "90", *options],
                   check=True, capture_output=True)  # fmt: skip
    return data / "train"


PROGRAM = """
import sys
sys.path[:0] = {paths!r}
import {library} as library, penstock_loader
batches = penstock_loader.ImageLoader({folder!r}, epochs=100, **{options!r})
kept = [library.from_dlpack(field) for field in next(batches)]
{end}
"""


def run_to(end, library, paths, folder, options):
    """A Python of its own that holds the tensors of a batch, does `end`, and ends."""
    text = PROGRAM.format(paths=paths, library=library.__name__, folder=str(folder), options=options, end=end)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120)
