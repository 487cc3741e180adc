# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DataLoader, with torchvision's v2 transforms and torchvision.io: torchvision's training reference."""

import time

import numpy
import torch
import torchvision
from torch.utils.data import DataLoader, Dataset
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2
from workers import counts


def versions():
    return f"torch {torch.__version__}, torchvision {torchvision.__version__}"


def SETTINGS(task, cores):
    if task == "slow_sample":
        return [{"workers": 8, "in_order": order, "prefetch": 4} for order in (True, False)]
    if task == "storage":
        return [{"workers": 1}, {"workers": 2}]
    if task == "loop":
        return [{"workers": 0}, {"workers": 1}]
    return [{"workers": workers} for workers in counts(cores, 0)]


def one_thread(_):
    torch.set_num_threads(1)


def batches(dataset, size, setting, epochs, shuffle=True, collate=None):
    workers = setting["workers"]
    more = {"prefetch_factor": setting.get("prefetch", 2), "persistent_workers": True,
            "in_order": setting.get("in_order", True)} if workers else {}  # fmt: skip
    loader = DataLoader(dataset, batch_size=size, shuffle=shuffle, num_workers=workers, collate_fn=collate,
                        worker_init_fn=one_thread, **more)  # fmt: skip
    try:
        for _ in range(epochs):
            yield from loader
    finally:
        loader._iterator = None  # Which ends its workers.


def load(path):
    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


def jpeg_folder(data, setting, epochs):
    torch.set_num_threads(1)
    crop = v2.RandomResizedCrop(224, antialias=True)
    yield from batches(ImageFolder(str(data.jpegs), transform=crop, loader=load), 64, setting, epochs)


class Mapped(Dataset):
    """Records of a file that is mapped. __getitems__ makes a batch at once."""

    def __init__(self, path, size):
        self.path, self.size, self.rows = path, size, path.stat().st_size // size
        self.memory = None

    def __len__(self):
        return self.rows

    def __getitems__(self, samples):
        if self.memory is None:
            self.memory = numpy.memmap(self.path, numpy.uint8, "r").reshape(-1, self.size)
        return torch.from_numpy(self.memory[samples])


def same(batch):
    return batch


def records(data, setting, epochs):
    yield from batches(Mapped(data.records, data.sizes["record_bytes"]), 256, setting, epochs, collate=same)


def storage(data, setting, epochs):
    yield from batches(Mapped(data.storage, data.sizes["storage_bytes"]), 400, setting, epochs, collate=same)


class Texts(Dataset):
    def __init__(self, data):
        self.tokens, self.offsets = (numpy.memmap(path, kind, "r") for path, kind in
                                     ((data.tokens, numpy.int32), (data.offsets, numpy.int64)))  # fmt: skip

    def __len__(self):
        return len(self.offsets) - 1

    def __getitem__(self, i):
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]


def one_behind_the_other(texts):
    offsets = numpy.zeros(len(texts) + 1, numpy.int64)
    numpy.cumsum([len(text) for text in texts], out=offsets[1:])
    return torch.from_numpy(numpy.concatenate(texts)), torch.from_numpy(offsets)


def tokens(data, setting, epochs):
    yield from batches(Texts(data), 256, setting, epochs, collate=one_behind_the_other)


class Numbers(Dataset):
    def __init__(self, samples, slow):
        self.samples, self.slow = samples, slow

    def __len__(self):
        return self.samples

    def __getitem__(self, i):
        if self.slow:
            time.sleep(0.1 if i % 500 == 499 else 0.001)
        return i


def slow_sample(data, setting, epochs):
    yield from batches(Numbers(data.sizes["slow_samples"], True), 64, setting, epochs)


def loop(data, setting, epochs):
    yield from batches(Numbers(data.sizes["loop_samples"], False), 1, setting, epochs, shuffle=False)


TASKS = {"jpeg_folder": jpeg_folder, "records_cached": records, "records_cold": records, "storage": storage,
         "tokens": tokens, "slow_sample": slow_sample, "loop": loop}  # fmt: skip
