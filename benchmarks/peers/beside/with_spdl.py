# SPDX-License-Identifier: Apache-2.0
"""SPDL: a pipeline of threads. FFmpeg decodes images, and its filters crop and resize them, as SPDL's image examples do."""

import functools
import importlib.metadata
import math
import random
import time

import numpy
import spdl.io
import spdl.io.utils
from spdl.pipeline import PipelineBuilder
from workers import counts


def versions():
    codecs = ".".join(map(str, spdl.io.utils.get_ffmpeg_versions()["libavcodec"]))
    return f"spdl-io {importlib.metadata.version('spdl-io')}, with FFmpeg's libavcodec {codecs}"


def SETTINGS(task, cores):
    if task == "slow_sample":
        return [{"threads": 8, "order": order, "buffer": 16} for order in ("input", "completion")]
    if task == "loop":
        return [{"threads": 1, "order": "input", "buffer": buffer} for buffer in (4, 64)]
    if task.startswith("tar_"):
        return [{"threads": threads, "whole": whole} for threads in sorted({1, *counts(cores)} - {2 * cores})
                for whole in (True, False)]  # fmt: skip
    return [{"threads": threads} for threads in counts(cores, 4 * cores)]


def stream(builder, setting, sink=4):
    pipeline = builder.add_sink(sink).build(num_threads=setting["threads"] + 1)  # One reads the source.
    with pipeline.auto_stop():
        yield from pipeline


def shuffled(count, size, epochs, shuffle=True):
    """Lists of the numbers of samples."""
    for epoch in range(epochs):
        order = numpy.random.default_rng(epoch).permutation(count) if shuffle else numpy.arange(count)
        for begin in range(0, count, size):
            yield order[begin : begin + size]


# ---- Images ----------------------------------------------------------------------------------------------


def crop_of(height, width):
    """torchvision's RandomResizedCrop.get_params."""
    for _ in range(10):
        area = height * width * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return w, h, random.randint(0, width - w), random.randint(0, height - h)
    side = min(height, width)
    return side, side, (width - side) // 2, (height - side) // 2


def decode(paths_and_labels):
    frames = []
    for path, _ in paths_and_labels:
        packets = spdl.io.demux_image(path)
        w, h, x, y = crop_of(packets.height, packets.width)
        what = f"format=rgb24,crop={w}:{h}:{x}:{y}:exact=1,scale=224:224:flags=bilinear"
        frames.append(spdl.io.decode_packets(packets, filter_desc=what))
    pixels = spdl.io.to_numpy(spdl.io.convert_frames(frames))
    return pixels, numpy.array([label for _, label in paths_and_labels])


def jpeg_folder(data, setting, epochs):
    classes = sorted(path for path in data.jpegs.iterdir())
    files = [(str(path), label) for label, folder in enumerate(classes) for path in sorted(folder.iterdir())]
    batches = ([files[i] for i in batch] for batch in shuffled(len(files), 64, epochs))
    builder = PipelineBuilder().add_source(batches).pipe(decode, concurrency=setting["threads"])
    yield from stream(builder, setting)


# ---- Tar -------------------------------------------------------------------------------------------------


def samples_of(setting, path):
    """(bytes, label) of each sample of a shard: the picture and the .cls behind or before it."""
    with open(path, "rb") as file:
        found, key = {}, None
        for name, content in spdl.io.iter_tarfile(file.read() if setting["whole"] else file):
            base, _, extension = name.partition(".")
            if base != key:
                found, key = {}, base
            found[extension] = content
            if len(found) == 2:
                (picture,) = (content for extension, content in found.items() if extension != "cls")
                yield picture, int(bytes(found["cls"]))


def buffered(samples, size=1000):
    """In the order of a buffer of samples, of which one is taken at random, as WebDataset does it."""
    buffer = []
    for sample in samples:
        if len(buffer) < size:
            buffer.append(sample)
            continue
        i = random.randrange(size)
        buffer[i], sample = sample, buffer[i]
        yield sample
    random.shuffle(buffer)
    yield from buffer


def tar(data, setting, epochs, shuffle):
    def shards():
        for _ in range(epochs):
            yield from random.sample(data.shards, len(data.shards)) if shuffle else data.shards

    builder = PipelineBuilder().add_source(shards()).pipe(lambda path: list(samples_of(setting, path)),
                                                          concurrency=setting["threads"])  # fmt: skip
    shards_read = stream(builder, setting, sink=2)
    samples = (sample for shard in shards_read for sample in shard)
    try:
        batch = []
        for sample in buffered(samples) if shuffle else samples:
            batch.append(sample)
            if len(batch) == 64:
                yield [picture for picture, _ in batch], [label for _, label in batch]
                batch = []
        if batch:
            yield [picture for picture, _ in batch], [label for _, label in batch]
    finally:
        shards_read.close()


# ---- Records, tokens, numbers ----------------------------------------------------------------------------


def records(data, setting, epochs):
    memory = numpy.memmap(data.records, numpy.uint8, "r").reshape(-1, data.sizes["record_bytes"])
    builder = PipelineBuilder().add_source(shuffled(len(memory), 256, epochs))
    yield from stream(builder.pipe(lambda batch: memory[batch], concurrency=setting["threads"]), setting)


def tokens(data, setting, epochs):
    values, offsets = numpy.memmap(data.tokens, numpy.int32, "r"), numpy.fromfile(data.offsets, numpy.int64)

    def pack(batch):
        texts = [values[offsets[i] : offsets[i + 1]] for i in batch]
        begins = numpy.zeros(len(texts) + 1, numpy.int64)
        numpy.cumsum([len(text) for text in texts], out=begins[1:])
        return numpy.concatenate(texts), begins

    builder = PipelineBuilder().add_source(shuffled(len(offsets) - 1, 256, epochs))
    yield from stream(builder.pipe(pack, concurrency=setting["threads"]), setting)


def wait(i):
    time.sleep(0.1 if i % 500 == 499 else 0.001)
    return i


def slow_sample(data, setting, epochs):
    batches = (batch.tolist() for batch in shuffled(data.sizes["slow_samples"], 64, epochs))
    builder = PipelineBuilder().add_source(batches).disaggregate()
    builder = builder.pipe(wait, concurrency=setting["threads"], output_order=setting["order"]).aggregate(64)
    yield from stream(builder, setting, setting["buffer"])


def loop(data, setting, epochs):
    builder = PipelineBuilder().add_source(shuffled(data.sizes["loop_samples"], 1, epochs, shuffle=False))
    yield from stream(builder, setting, setting["buffer"])


TASKS = {"jpeg_folder": jpeg_folder, "tar_sequential": functools.partial(tar, shuffle=False),
         "tar_shuffled": functools.partial(tar, shuffle=True), "records_cached": records, "tokens": tokens,
         "slow_sample": slow_sample, "loop": loop}  # fmt: skip
