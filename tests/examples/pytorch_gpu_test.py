#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/pytorch on a GPU: streams, contents and leases as PyTorch sees them.

Use: pytorch_gpu_test.py MODULE_FOLDER MAKE_IMAGES. Exit status 77 without a GPU or without torch.
"""

import sys
import tempfile

sys.dont_write_bytecode = True
from pytorch_support import make_images, raises, run_to  # noqa: E402

MODULE, MAKE = sys.argv[1:3]
try:
    import torch
except ImportError:
    print(f"skipped: {sys.executable} has no torch")
    sys.exit(77)
if not torch.cuda.is_available():
    print("skipped: no GPU")
    sys.exit(77)
sys.path.insert(0, MODULE)

import penstock_loader  # noqa: E402

COUNT, BATCH, SIZE = 200, 16, 64
CYCLES = 20_000_000  # about 10 ms of a GPU


def loader(folder, **options):
    return penstock_loader.ImageLoader(folder, **{"batch_size": BATCH, "size": SIZE, "train": False, **options})


def read(pair):
    return tuple(torch.from_dlpack(field) for field in pair)


def reference(folder):
    """Every batch, with the device idle in between."""
    batches = []
    with loader(folder) as some:
        for images, labels in map(read, some):
            torch.cuda.synchronize()
            batches.append((images.cpu(), labels.cpu()))
            torch.cuda.synchronize()
    assert sum(len(labels) for _, labels in batches) == COUNT
    return batches


def check(found, batches):
    torch.cuda.synchronize()
    assert len(found) == len(batches)
    for number, (one, other) in enumerate(zip(found, batches)):
        for a, b in zip(one, other):
            assert torch.equal(a.cpu(), b), f"batch {number} differs"


def the_protocol_is_kept(folder, _):
    with loader(folder) as batches:
        images, labels = next(batches)
        assert images.__dlpack_device__() == (2, 0) and not penstock_loader.ON_CPU
        for stream in (None, -1, 1, 2, torch.cuda.Stream().cuda_stream):
            assert images.__dlpack__(stream=stream, max_version=(1, 0))
        raises(ValueError, lambda: images.__dlpack__(stream=0, max_version=(1, 0)), "0")
        raises(BufferError, lambda: images.__dlpack__(stream=1), "max_version")
        tensor = torch.from_dlpack(images)
        assert tensor.device == torch.device("cuda:0") and tensor.shape == (BATCH, SIZE, SIZE, 3), tensor.shape
        assert tensor.data_ptr() == torch.from_dlpack(images).data_ptr()  # Nothing is copied.
        assert tensor.permute(0, 3, 1, 2).is_contiguous(memory_format=torch.channels_last)
        graph = torch.cuda.CUDAGraph()

        def capture():
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                torch.from_dlpack(labels)

        raises(RuntimeError, capture, "captured")


def a_slot_waits_for_the_stream_that_reads_it(folder, batches):
    """One slot, a stream that lags behind, tensors that are dropped at once."""
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        found = []
        with loader(folder, device_depth=1) as some, torch.cuda.stream(stream):
            for images, labels in map(read, some):
                torch.cuda._sleep(CYCLES)
                found.append((images.clone(), labels.clone()))
                del images, labels
        check(found, batches)


def a_slot_waits_for_streams_named_later(folder, batches):
    side, found = torch.cuda.Stream(), []
    with loader(folder, device_depth=1) as some:
        for pair in some:
            images, labels = read(pair)
            for field in pair:
                field.use_on(side.cuda_stream)
            with torch.cuda.stream(side):
                torch.cuda._sleep(CYCLES)
                found.append((images.clone(), labels.clone()))
            del images, labels, field, pair
    check(found, batches)


def slots_have_few_addresses_and_batches_may_be_kept(folder, batches):
    with loader(folder, device_depth=4) as some:
        kept = [read(next(some)) for _ in range(4)]
    check(kept, batches[:4])  # after the loader is closed
    addresses = set()
    with loader(folder, device_depth=3) as some:
        for images, labels in map(read, some):
            addresses.add(images.data_ptr())
            del images, labels
    assert len(addresses) <= 3, addresses


def processes_end_with_tensors_alive(folder, _):
    for end in ("", "batches.close()", "class C: pass\nc = C(); c.c, c.kept = c, (batches, kept)"):
        done = run_to(end, torch, [MODULE], folder, {"batch_size": BATCH, "size": SIZE})
        assert done.returncode == 0 and "Traceback" not in done.stderr, (end, done)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = make_images(MAKE, scratch, "--train", str(COUNT))
        batches = reference(folder)
        for test in (the_protocol_is_kept, a_slot_waits_for_the_stream_that_reads_it,
                     a_slot_waits_for_streams_named_later, slots_have_few_addresses_and_batches_may_be_kept,
                     processes_end_with_tensors_alive):  # fmt: skip
            test(folder, batches)
            print(f"passed: {test.__name__.replace('_', ' ')}", flush=True)
    print(f"passed: PyTorch {torch.__version__} on {torch.cuda.get_device_name()}")


if __name__ == "__main__":
    main()
