# SPDX-License-Identifier: Apache-2.0
"""LitData: its optimized chunks of 64 MB, local, by StreamingDataset and StreamingDataLoader."""

import functools
import importlib.metadata
import shutil

import litdata
import numpy
import torch
from litdata.streaming import Cache
from workers import counts


def versions():
    return f"litdata {importlib.metadata.version('litdata')}, torch {torch.__version__}"


def SETTINGS(task, cores):
    return [{"workers": workers} for workers in counts(cores, 0)]


def write(data, name, samples):
    """Chunks, by the writer that optimize() uses in each of its workers."""
    folder = data.folder / f"{name}.litdata"
    if folder.exists():
        return
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    cache = Cache(str(partial), chunk_bytes="64MB")
    for i, sample in enumerate(samples):
        cache[i] = sample
    cache.done()
    cache.merge()
    partial.rename(folder)


def pictures(data):
    classes = sorted(data.jpegs.iterdir())
    for label, folder in enumerate(classes):
        for path in sorted(folder.iterdir()):
            yield path.read_bytes(), label


def of_records(data):
    memory = numpy.memmap(data.records, numpy.uint8, "r").reshape(-1, data.sizes["record_bytes"])
    return (row.tobytes() for row in memory)


def batches(data, name, size, setting, epochs, transform=None, collate=None, shuffle=True):
    dataset = litdata.StreamingDataset(str(data.folder / f"{name}.litdata"), shuffle=shuffle, transform=transform,
                                       drop_last=False)  # fmt: skip
    workers = setting["workers"]
    loader = litdata.StreamingDataLoader(dataset, batch_size=size, num_workers=workers, collate_fn=collate,
                                         persistent_workers=workers > 0)  # fmt: skip
    try:
        for _ in range(epochs):
            yield from loader
    finally:
        loader._iterator = None  # Which ends its workers.


def crop(sample):
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    pixels = decode_jpeg(torch.frombuffer(bytearray(sample[0]), dtype=torch.uint8), mode=ImageReadMode.RGB)
    return v2.RandomResizedCrop(224, antialias=True)(pixels), sample[1]


def jpeg_folder(data, setting, epochs):
    torch.set_num_threads(1)
    yield from batches(data, "jpeg", 64, setting, epochs, transform=crop)


def rows(samples):
    return torch.from_numpy(numpy.frombuffer(b"".join(samples), numpy.uint8).reshape(len(samples), -1).copy())


def records(data, setting, epochs):
    yield from batches(data, "records", 256, setting, epochs, collate=rows)




def prepare_records(data):
    write(data, "records", of_records(data))


TASKS = {"jpeg_folder": jpeg_folder, "records_cached": records, "records_cold": records}
PREPARE = {"jpeg_folder": lambda data: write(data, "jpeg", pictures(data)), "records_cached": prepare_records,
           "records_cold": prepare_records}  # fmt: skip
