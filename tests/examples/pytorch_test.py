#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/pytorch: the module over the emulated runtime, read by NumPy or by PyTorch, and its ends.

Use: pytorch_test.py numpy|torch|train MODULE_FOLDER MAKE_IMAGES
`train` runs train.py. Exit status 77 where Python has no torch, for the last two.
"""

import gc
import importlib.util
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from pytorch_support import make_images, raises, run_to  # noqa: E402

CONSUMER, MODULE, MAKE = sys.argv[1:4]
ROOT = pathlib.Path(__file__).resolve().parents[2]
if CONSUMER != "numpy" and any(importlib.util.find_spec(name) is None for name in ("torch", "torchvision")):
    print(f"skipped: {sys.executable} has no torch and torchvision")
    sys.exit(77)
PATHS = [MODULE] + [str(ROOT / ".deps/numpy")] * (CONSUMER == "numpy")  # scripts/setup's, where there is one
sys.path[:0] = PATHS

import penstock_loader  # noqa: E402

if CONSUMER == "numpy":
    import numpy as library
else:
    import torch as library  # noqa: E402

CPU = (1, 0)


def loader(folder, **options):
    return penstock_loader.ImageLoader(folder, **{"batch_size": 8, "size": 32, "workers": 2, "seed": 3, **options})


def read(pair):
    return tuple(library.from_dlpack(field) for field in pair)


def epochs_end_and_hold_every_image(folder):
    with loader(folder, epochs=2) as batches:
        assert len(batches) == 5 and batches.classes == ["disc", "ring"], (len(batches), batches.classes)
        for _ in range(2):
            count = 0
            for images, labels in map(read, batches):
                assert tuple(images.shape) == (8, 32, 32, 3) and tuple(labels.shape) == (8,)
                assert images.dtype == library.float32 and labels.dtype == library.int32
                assert images.min() < 0 < images.max() and labels.max() <= 1
                count += 1
            assert count == 5
        assert not list(batches)  # There is no third.
    with loader(folder, train=False, batch_size=32) as batches:  # In order, with a short batch.
        labels = [int(label) for _, some in map(read, batches) for label in some]
    assert labels == sorted(labels) and len(labels) == 46, labels


def seeds_decide(folder):
    def first(seed):
        with loader(folder, seed=seed) as batches:
            return read(next(batches))[0] + 0

    assert (first(1) == first(1)).all() and not (first(1) == first(2)).all()


def tensors_hold_the_lease(folder):
    with loader(folder, epochs=100, device_depth=2, stall_seconds=0.3) as batches:
        held = [read(next(batches)) for _ in range(2)]
        before = [float(images.sum()) for images, _ in held]
        raises(RuntimeError, lambda: next(batches), "device slots are leased")
        assert before == [float(images.sum()) for images, _ in held]
        images = held.pop()[0]  # One tensor of the two keeps it.
        raises(RuntimeError, lambda: next(batches), "device slots are leased")
        view = images[2:, :4]  # And a view of it.
        del images
        raises(RuntimeError, lambda: next(batches), "device slots are leased")
        del view, held
        assert [sum(1 for _ in map(read, batches)) for _ in range(3)] == [3, 5, 5]


def the_protocol_is_kept(folder):
    with loader(folder, device_depth=1, epochs=9, stall_seconds=0.3) as batches:
        images, labels = next(batches)
        assert images.__dlpack_device__() == CPU
        raises(BufferError, images.__dlpack__, "max_version=(1, 0)")
        raises(BufferError, lambda: images.__dlpack__(max_version=(0, 8)), "max_version=(1, 0)")
        raises(BufferError, lambda: images.__dlpack__(max_version=(1, 0), copy=True), "copy")
        raises(BufferError, lambda: images.__dlpack__(max_version=(1, 0), dl_device=(2, 0)), "dl_device")
        raises(ValueError, lambda: images.__dlpack__(max_version=(1, 0), stream=1), "CPU")
        raises(TypeError, lambda: images.__dlpack__((1, 0)))
        unused = images.__dlpack__(max_version=(1, 3), dl_device=CPU, copy=False)
        assert "dltensor_versioned" in repr(unused)
        twice = read((images, images))
        assert (twice[0] == twice[1]).all()
        del images, labels, twice
        gc.collect()
        raises(RuntimeError, lambda: next(batches), "device slots are leased")
        del unused  # A capsule that nobody took ends the lease too.
        assert next(batches)


def tensors_outlive_the_loader(folder):
    batches = loader(folder, epochs=2)
    images, _ = read(next(batches))
    before = float(images.sum())
    batches.close()
    batches.close()
    raises(RuntimeError, lambda: next(batches), "closed")
    del batches
    gc.collect()
    assert float(images.sum()) == before
    thread = threading.Thread(target=lambda kept: kept.clear(), args=([images],))
    del images
    thread.start()
    thread.join()


def failures_are_exceptions(folder):
    raises(RuntimeError, lambda: loader(folder / "none"), "none")
    raises(ValueError, lambda: loader(folder, batch_size=0), "batch_size")
    raises(TypeError, lambda: loader(folder, bathc_size=8))
    broken = sorted(folder.glob("*/*"))[11]
    whole = broken.read_bytes()
    broken.write_bytes(b"no image")
    try:
        with loader(folder, train=False) as batches:
            assert next(batches)
            raises(penstock_loader.SourceError, lambda: next(batches), broken.name)
            assert next(batches)  # The batches behind it are there.
    finally:
        broken.write_bytes(whole)


def others_run_while_it_waits(folder):
    with loader(folder, device_depth=1, epochs=2, stall_seconds=1) as batches:
        held = next(batches)
        turns, over = 0, threading.Event()
        thread = threading.Thread(target=lambda: (raises(RuntimeError, lambda: next(batches), "leased"), over.set()))
        thread.start()
        while not over.wait(0.01):
            turns += 1
        thread.join()
        assert turns > 30, turns
        del held


def close_ends_a_wait(folder):
    batches = loader(folder, device_depth=1, epochs=2)
    held = next(batches)
    thread = threading.Thread(target=raises, args=(RuntimeError, lambda: next(batches), "closed"))
    thread.start()
    time.sleep(0.2)
    begin = time.monotonic()
    batches.close()
    thread.join()
    assert time.monotonic() - begin < 5
    del held


def interrupts_end_a_wait(folder):
    with loader(folder, device_depth=1, epochs=2) as batches:
        held = next(batches)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        begin = time.monotonic()
        raises(KeyboardInterrupt, lambda: next(batches))
        assert time.monotonic() - begin < 5
        del held
        assert next(batches)  # The batch is not lost.


def processes_end_with_tensors_alive(folder):
    for end in ("", "batches.close()", "del batches", "sys.exit(0)", "import os; sys.exit(os.fork() and os.wait()[1])",
                "held = next(batches)", "class C: pass\nc = C(); c.c, c.kept = c, (batches, kept)"):  # fmt: skip
        done = run_to(end, library, PATHS, folder, {"batch_size": 8, "size": 32, "workers": 2})
        assert done.returncode == 0 and not done.stderr, (end, done)


def check_training(folder):
    done = subprocess.run([sys.executable, ROOT / "examples/pytorch/train.py", folder, "2"], capture_output=True,
                          text=True, timeout=600, env={**os.environ, "PYTHONPATH": MODULE})  # fmt: skip
    assert done.returncode == 0 and done.stdout.count("images/s") == 2, done


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = make_images(MAKE, scratch, "--train", "46", "--classes", "2")
        if CONSUMER == "train":
            check_training(folder)
        else:
            for check in (epochs_end_and_hold_every_image, seeds_decide, tensors_hold_the_lease, the_protocol_is_kept,
                          tensors_outlive_the_loader, failures_are_exceptions, others_run_while_it_waits,
                          close_ends_a_wait, interrupts_end_a_wait, processes_end_with_tensors_alive):  # fmt: skip
                check(folder)
                print(f"passed: {check.__name__.replace('_', ' ')}", flush=True)
    print(f"passed: {library.__name__} {library.__version__}")


if __name__ == "__main__":
    main()
