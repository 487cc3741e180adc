# SPDX-License-Identifier: Apache-2.0
"""NVIDIA DALI without a GPU: its readers and CPU operators, as in its ImageNet and WebDataset examples."""

import functools
import importlib.metadata
import time

import numpy
from nvidia.dali import fn, pipeline_def, types
from workers import counts


def versions():
    name = next(name for name in ("nvidia-dali-cuda120", "nvidia-dali-cuda130") if has(name))
    return f"{name} {importlib.metadata.version(name)}"


def has(package):
    try:
        return bool(importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return False


def SETTINGS(task, cores):
    if task == "slow_sample":
        return [{"threads": 1, "processes": 8, "queue": queue} for queue in (2, 4)]
    return [{"threads": threads, "queue": queue} for threads in counts(cores) for queue in (2, 4)]


def run(definition, setting, size, samples, epochs, take, **more):
    """Batches of a pipeline that goes round its data; the last of an epoch is filled up with the next one's samples, so
    that an epoch of `samples` ends within a batch."""
    pipeline = definition(batch_size=size, num_threads=setting["threads"], device_id=None,
                          prefetch_queue_depth=setting["queue"], **more)  # fmt: skip
    pipeline.build()
    left = samples * epochs
    while left > 0:
        yield take(pipeline.run(), min(left, size))
        left -= size


@pipeline_def
def images(folder):
    files, labels = fn.readers.file(file_root=str(folder), random_shuffle=True, name="files")
    pixels = fn.decoders.image_random_crop(files, device="cpu", random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3])
    pixels = fn.resize(pixels, device="cpu", resize_x=224, resize_y=224, interp_type=types.INTERP_LINEAR, antialias=True)
    return pixels, labels


def jpeg_folder(data, setting, epochs):
    def take(outputs, count):
        return outputs[0].as_array()[:count], outputs[1].as_array()[:count, 0]

    definition = functools.partial(images, folder=data.jpegs)
    yield from run(definition, setting, 64, data.sizes["images"], epochs, take)


@pipeline_def
def tar_files(shards, shuffle):
    return tuple(fn.readers.webdataset(paths=shards, ext=["jpg;jpeg", "cls"], random_shuffle=shuffle, initial_fill=1000,
                                       missing_component_behavior="error"))  # fmt: skip


def tar(data, setting, epochs, shuffle):
    def take(outputs, count):
        pictures = [outputs[0].at(i) for i in range(count)]
        return pictures, [int(outputs[1].at(i).tobytes()) for i in range(count)]

    definition = functools.partial(tar_files, shards=data.shards, shuffle=shuffle)
    yield from run(definition, setting, 64, data.sizes["images"], epochs, take)


class Slow:
    """For DALI's processes."""

    def __init__(self, samples):
        self.samples = samples

    def __call__(self, info):
        i = info.idx_in_epoch % self.samples
        time.sleep(0.1 if i % 500 == 499 else 0.001)
        return numpy.int64([i])


@pipeline_def(py_start_method="fork")
def slow_numbers(samples, queue):
    return fn.external_source(source=Slow(samples), batch=False, parallel=True, prefetch_queue_depth=queue, dtype=types.INT64)


def first(outputs, count):
    return outputs[0].as_array()[:count, 0]


def slow_sample(data, setting, epochs):
    samples = data.sizes["slow_samples"]
    definition = functools.partial(slow_numbers, samples=samples, queue=setting["queue"])
    yield from run(definition, setting, 64, samples, epochs, first, py_num_workers=setting["processes"])


@pipeline_def
def numbers(samples):
    count = iter(numpy.arange(samples, dtype=numpy.int64).reshape(-1, 1))

    def one():
        nonlocal count
        try:
            return next(count)
        except StopIteration:
            count = iter(numpy.arange(samples, dtype=numpy.int64).reshape(-1, 1))
            return next(count)

    return fn.external_source(source=one, batch=False, dtype=types.INT64)


def loop(data, setting, epochs):
    samples = data.sizes["loop_samples"]
    yield from run(functools.partial(numbers, samples=samples), setting, 1, samples, epochs, first)


TASKS = {"jpeg_folder": jpeg_folder, "tar_sequential": functools.partial(tar, shuffle=False),
         "tar_shuffled": functools.partial(tar, shuffle=True), "slow_sample": slow_sample, "loop": loop}  # fmt: skip
