#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
torchvision_images.py FILE [--seconds 2] [--repeat 7]

What benchmarks/images_benchmark.cpp measures, with torchvision on one thread: a JPEG decoded to a tensor of uint8,
decoded and cropped to 224 x 224 by v2's RandomResizedCrop, and resized alone. Microseconds of CPU time for one image:
the least of --repeat rounds' means, which share --seconds seconds. Run it right before or after images_benchmark on
the same machine; FILE is what that wrote (PENSTOCK_JPEG=FILE). Needs torch and torchvision; Pillow, where there is
one, is measured too.
"""

import argparse
import time

import torch
import torchvision
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2 import functional

try:
    import io

    from PIL import Image
except ImportError:
    Image = None

OUTPUT = [224, 224]


def measure(name, work, options):
    work(0)
    start = time.thread_time()
    work(1)
    count = max(1, int(options.seconds / options.repeat / max(time.thread_time() - start, 1e-6)))
    least = float("inf")
    for _ in range(options.repeat):
        start = time.thread_time()
        for i in range(count):
            work(i)
        least = min(least, (time.thread_time() - start) / count)
    print(f"{name:44} {1e6 * least:10.1f} us")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}, {torch.backends.cpu.get_cpu_capability()}")

    with open(options.file, "rb") as file:
        data = file.read()
    encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    image = decode_jpeg(encoded, mode=ImageReadMode.RGB)
    crops = [RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(997)]

    def crop(tensor, i):
        return functional.resized_crop(tensor, *crops[i % len(crops)], OUTPUT, antialias=True)

    def centre(i):
        return functional.center_crop(functional.resize(image, 256, antialias=True), OUTPUT)

    planar = image.contiguous()
    measure("decode_whole", lambda i: decode_jpeg(encoded, mode=ImageReadMode.RGB), options)
    measure("decode_and_crop", lambda i: crop(decode_jpeg(encoded, mode=ImageReadMode.RGB), i), options)
    measure("resize_alone/random_resized_crop", lambda i: crop(image, i), options)
    measure("resize_alone/random_resized_crop, planar", lambda i: crop(planar, i), options)
    measure("resize_alone/resize_center_crop", centre, options)
    if Image is not None:
        picture = Image.open(io.BytesIO(data)).convert("RGB")

        def pillow(i):
            top, left, height, width = crops[i % len(crops)]
            return picture.resize(OUTPUT, Image.BILINEAR, box=(left, top, left + width, top + height))

        measure(f"resize_alone/random_resized_crop, Pillow {Image.__version__}", pillow, options)


if __name__ == "__main__":
    main()
