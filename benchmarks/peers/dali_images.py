#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
dali_images.py --images DIR [--only loader,resnet18,resnet50] [--threads 4,8] [--load 0.9] [--queue 4] [--mmap]
               [--batch18 512] [--batch50 256] [--steps 40] [--warmup 10] [--limit SECONDS] [--json FILE]

NVIDIA DALI on a GPU, beside `scripts/gpu-check images`: DIR is a folder with a directory for each class (make_images
writes one), read from a warm page cache. DALI's mixed decoder (the GPU's JPEG engines, and CUDA), random resized crop,
flip, normalised, float16, channels last, as in its ImageNet example for PyTorch.

  loader              batches of --batch18 in device memory, nothing trained
  resnet18, resnet50  PyTorch's compiled training behind it (pytorch_images.py's step), and first the same with one
                      batch of the loader that stays on the device

--threads, --load (hw_decoder_load), --queue (prefetch_queue_depth) and --mmap are the settings of DALI that matter: of 18
that were tried on an H100 with 16 cores, a load of 0.9 and no mapping were the best for JPEGs of 500 x 375; of two queues 4
trained faster. The loader is measured with each number of threads, and the fastest is its result; training uses the
first. Each measurement is a process of its own. Prints images/s as they come, and keeps them in FILE. Exit status 1 when one failed.

Needs nvidia-dali-cuda130, torch and torchvision, and libnvjpeg.so.13 on LD_LIBRARY_PATH.
"""

import argparse
import itertools
import os
import sys
import time

# nvJPEG's streams share CUDA's connections with PyTorch's: with 8, as is usual, its work waits behind that.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")

import torch
from nvidia import dali
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIClassificationIterator

import pytorch_images

ALL = ["loader", "resnet18", "resnet50"]


@pipeline_def
def pictures(folder, size, setting):
    on_gpu = setting.device == "cuda"
    files, labels = fn.readers.file(file_root=str(folder), random_shuffle=True, initial_fill=4096, name="files",
                                    dont_use_mmap=not setting.mmap)  # fmt: skip
    pixels = fn.decoders.image_random_crop(
        files, device="mixed" if on_gpu else "cpu", output_type=types.RGB, random_area=[0.08, 1.0],
        random_aspect_ratio=[3 / 4, 4 / 3],
        **({"hw_decoder_load": setting.load, "preallocate_width_hint": 1024, "preallocate_height_hint": 1024} if on_gpu else {}))  # fmt: skip
    pixels = fn.resize(pixels, resize_x=size, resize_y=size, interp_type=types.INTERP_LINEAR, antialias=True)
    pixels = fn.crop_mirror_normalize(
        pixels, dtype=types.FLOAT16, output_layout="HWC", mirror=fn.random.coin_flip(probability=0.5),
        mean=[255 * value for value in pytorch_images.MEAN],
        std=[255 * value for value in pytorch_images.DEVIATION])  # fmt: skip
    return pixels, labels.gpu() if on_gpu else labels


def batches_of(batch, threads, option):
    """Endless (images, labels) on the device: float16, channels last."""
    pipeline = pictures(option.images, option.image_size, option, batch_size=batch, num_threads=threads,
                        device_id=0 if option.device == "cuda" else None, seed=1, prefetch_queue_depth=option.queue)  # fmt: skip
    epochs = DALIClassificationIterator(pipeline, reader_name="files", auto_reset=True,
                                        last_batch_policy=LastBatchPolicy.DROP)  # fmt: skip
    for (batch,) in itertools.chain.from_iterable(itertools.repeat(epochs)):
        yield batch["data"].permute(0, 3, 1, 2), batch["label"].view(-1).long()


def measure_loader(threads, option):
    begin = time.perf_counter()
    batches = batches_of(option.batch18, threads, option)
    wait = torch.cuda.synchronize if option.device == "cuda" else lambda: None
    next(batches)
    wait()
    first = time.perf_counter() - begin
    for _ in range(option.warmup):
        next(batches)
    wait()
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(3 * option.steps):  # Without training they are short.
        next(batches)
    wait()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return {"images_per_second": 3 * option.steps * option.batch18 / seconds, "cpu_cores": cpu / seconds,
            "first_batch_seconds": first, "threads": threads}  # fmt: skip


def measure(name, option):
    if name == "loader":
        found = []
        for threads in option.threads:
            found.append(measure_loader(threads, option))
            print("{threads} threads: {images_per_second:.0f} images/s, {cpu_cores:.2f} cores".format(**found[-1]),
                  file=sys.stderr, flush=True)  # fmt: skip
        best = max(found, key=lambda result: result["images_per_second"])
        return {**best, "all": found}
    batch = option.batch50 if name == "resnet50" else option.batch18
    batches = batches_of(batch, option.threads[0], option)
    fixed = tuple(tensor.clone() for tensor in next(batches))
    classes = sum(entry.is_dir() for entry in os.scandir(option.images))
    step = pytorch_images.make_step(name, classes, option)
    free = pytorch_images.timed(step, lambda: fixed, batch, option)
    if "failed" in free:
        return free
    result = pytorch_images.timed(step, lambda: next(batches), batch, option)
    return {**result, "free_images_per_second": free["images_per_second"], "threads": option.threads[0]}


def main():
    parser = pytorch_images.arguments(__doc__, ALL)
    parser.add_argument("--threads", type=lambda text: [int(word) for word in text.split(",")], default=[4, 8])
    parser.add_argument("--load", type=float, default=0.9)
    parser.add_argument("--queue", type=int, default=4)
    parser.add_argument("--mmap", action=argparse.BooleanOptionalAction, default=False)
    return pytorch_images.run_all(parser, ALL, measure, f"DALI {dali.__version__}, PyTorch {torch.__version__}")


if __name__ == "__main__":
    sys.exit(main())
