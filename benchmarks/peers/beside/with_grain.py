# SPDX-License-Identifier: Apache-2.0
"""Grain: MapDataset with threads (ReadOptions) or processes (mp_prefetch); ArrayRecord for records. Grain decodes no images:
OpenCV does it here, without threads of its own."""

import functools
import importlib.metadata
import math
import random
import time

import grain
import numpy
from workers import counts


def versions():
    parts = [f"{name} {importlib.metadata.version(name)}" for name in ("grain", "array_record")]
    return ", ".join(parts)


def SETTINGS(task, cores):
    if task == "slow_sample":
        return [{"threads": 8, "buffer": buffer, "workers": 0} for buffer in (128, 512)]
    if task == "loop":
        return [{"threads": threads, "buffer": 16, "workers": 0} for threads in (0, 1)]
    if task == "storage":
        return [{"threads": threads, "buffer": 2 * threads, "workers": 0} for threads in (1, 2)]
    if task == "jpeg_folder":
        return [{"threads": threads, "buffer": 128, "workers": 0} for threads in counts(cores, 4 * cores)] + [
            {"threads": 1, "buffer": 64, "workers": workers} for workers in processes(cores)]  # fmt: skip
    return [{"threads": threads, "buffer": 2 * max(threads, cores), "workers": 0} for threads in counts(cores)] + [
        {"threads": 1, "buffer": 2, "workers": workers} for workers in processes(cores)]  # fmt: skip


def processes(cores):
    """Few, as each takes seconds to start."""
    return sorted({max(1, cores // 2), cores})


def rounds(dataset, setting, epochs, batch=None):
    """With `batch`, the threads load samples, which are batched behind them; else they load batches."""
    dataset = dataset if epochs == 1 else dataset.repeat(None)
    read = grain.ReadOptions(num_threads=setting["threads"], prefetch_buffer_size=setting["buffer"])
    iterable = dataset.to_iter_dataset(read)
    iterable = iterable.batch(batch) if batch else iterable
    if setting["workers"]:
        iterable = iterable.mp_prefetch(grain.MultiprocessingOptions(num_workers=setting["workers"], per_worker_buffer_size=2))
    iterator = iter(iterable)
    try:
        yield from iterator
    finally:
        getattr(iterator, "close", lambda: None)()


def crop_of(height, width):
    """torchvision's RandomResizedCrop.get_params."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, height - h), random.randint(0, width - w), h, w
    side = min(height, width)
    return (height - side) // 2, (width - side) // 2, side, side


def load(file):
    import cv2

    cv2.setNumThreads(0)
    path, label = file
    pixels = cv2.imread(path, cv2.IMREAD_COLOR_RGB)
    top, left, height, width = crop_of(*pixels.shape[:2])
    part = pixels[top : top + height, left : left + width]
    how = cv2.INTER_AREA if height > 224 and width > 224 else cv2.INTER_LINEAR
    return cv2.resize(part, (224, 224), interpolation=how), label


def jpeg_folder(data, setting, epochs):
    classes = sorted(data.jpegs.iterdir())
    files = [(str(path), label) for label, folder in enumerate(classes) for path in sorted(folder.iterdir())]
    dataset = grain.MapDataset.source(files).seed(1).shuffle().map(load)
    yield from rounds(dataset, setting, epochs, 64)


def write_records(data, name, size):
    from array_record.python.array_record_module import ArrayRecordWriter

    path = data.folder / f"{name}.array_record"
    if path.exists():
        return
    partial = path.with_suffix(".partial")
    writer = ArrayRecordWriter(str(partial), "group_size:1,uncompressed")
    with open(data.folder / f"{name}.bin", "rb") as file:
        while record := file.read(size):
            writer.write(record)
    writer.close()
    partial.rename(path)


def records(data, setting, epochs, name, batch):
    source = grain.sources.ArrayRecordDataSource(str(data.folder / f"{name}.array_record"))
    dataset = grain.MapDataset.source(source).seed(1).shuffle()
    dataset = dataset.map(lambda record: numpy.frombuffer(record, numpy.uint8)).batch(batch)
    yield from rounds(dataset, setting, epochs)


class Texts:
    """A source of texts."""

    def __init__(self, data):
        self.tokens, self.offsets = data.tokens, numpy.fromfile(data.offsets, numpy.int64)
        self.memory = None

    def __len__(self):
        return len(self.offsets) - 1

    def __getitem__(self, i):
        if self.memory is None:
            self.memory = numpy.memmap(self.tokens, numpy.int32, "r")
        return self.memory[self.offsets[i] : self.offsets[i + 1]]

    def __repr__(self):
        return "Texts"


def one_behind_the_other(texts):
    offsets = numpy.zeros(len(texts) + 1, numpy.int64)
    numpy.cumsum([len(text) for text in texts], out=offsets[1:])
    return numpy.concatenate(texts), offsets


def tokens(data, setting, epochs):
    dataset = grain.MapDataset.source(Texts(data)).seed(1).shuffle().batch(256, batch_fn=one_behind_the_other)
    yield from rounds(dataset, setting, epochs)


def wait(i):
    time.sleep(0.1 if i % 500 == 499 else 0.001)
    return i


def slow_sample(data, setting, epochs):
    dataset = grain.MapDataset.range(data.sizes["slow_samples"]).seed(1).shuffle().map(wait)
    yield from rounds(dataset, setting, epochs, 64)


def loop(data, setting, epochs):
    yield from rounds(grain.MapDataset.range(data.sizes["loop_samples"]).batch(1), setting, epochs)


of_records = functools.partial(records, name="records", batch=256)
TASKS = {"jpeg_folder": jpeg_folder, "records_cached": of_records, "records_cold": of_records,
         "storage": functools.partial(records, name="storage", batch=400), "tokens": tokens, "slow_sample": slow_sample,
         "loop": loop}  # fmt: skip
PREPARE = {"records_cached": lambda data: write_records(data, "records", data.sizes["record_bytes"]),
           "records_cold": lambda data: write_records(data, "records", data.sizes["record_bytes"]),
           "storage": lambda data: write_records(data, "storage", data.sizes["storage_bytes"])}  # fmt: skip
