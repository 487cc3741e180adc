#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what crop_test.cpp and resizer_test.cpp compare with: torchvision's transforms, on tensors.

    make_vectors.py tests/images/vectors/torchvision.json

Pictures are noise that both sides compute (noise() is pictures.hpp's). Of each result every `stride`-th pixel is kept.
Of RandomResizedCrop, whose random numbers are not ours, kept is how its crops are distributed: for each of five
numbers a few values, and the share of crops that have at most this value.

Needs torch and torchvision.
"""

import json
import sys

import numpy
import torch
import torchvision
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2 import functional

DRAWS = 20000
QUANTILES = [0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98]

# height, width of the picture; top, left, height, width of the crop; height, width of the output
CROPS = [
    (37, 53, 5, 7, 21, 30, 12, 16),  # smaller
    (37, 53, 0, 0, 37, 53, 12, 16),
    (37, 53, 20, 11, 17, 42, 17, 42),  # as it is
    (37, 53, 3, 40, 8, 9, 12, 16),  # larger
    (37, 53, 30, 2, 4, 50, 12, 16),  # one direction larger, one smaller
    (37, 53, 2, 48, 34, 3, 12, 16),
    (37, 53, 36, 52, 1, 1, 3, 5),  # one pixel, at the end of memory
    (90, 120, 1, 2, 88, 117, 5, 3),  # much smaller
    (1, 200, 0, 10, 1, 180, 9, 7),
    (200, 1, 10, 0, 180, 1, 9, 7),
    (375, 500, 40, 61, 300, 311, 224, 224),  # as in training
    (375, 500, 101, 300, 97, 120, 224, 224),
]
# height, width of the picture; resize; height, width of the output
CENTRES = [
    (37, 53, 16, 12, 16),
    (53, 37, 19, 8, 13),
    (9, 7, 16, 16, 16),
    (16, 16, 16, 15, 12),
    (12, 100, 16, 14, 14),
    (100, 12, 17, 8, 8),
    (1, 5, 9, 8, 8),
    (375, 500, 256, 224, 224),
    (500, 333, 232, 224, 224),
]
SIZES = [(375, 500), (64, 64), (7, 5), (300, 20), (20, 90), (1, 1), (1, 10000), (10000, 1)]


def noise(height, width):
    values = numpy.empty(height * width * 3, dtype=numpy.uint8)
    state = 12345
    for i in range(values.size):
        state = (state * 1664525 + 1013904223) % 2**32
        values[i] = state >> 24
    return torch.from_numpy(values.reshape(height, width, 3)).permute(2, 0, 1)


def kept(picture):
    pixels = picture.permute(1, 2, 0).reshape(-1, 3)
    stride = max(1, len(pixels) // 199)
    return {"stride": stride, "rgb": bytes(pixels[::stride].flatten().tolist()).hex()}


def crops():
    for height, width, top, left, crop_height, crop_width, *output in CROPS:
        picture = noise(height, width)
        result = functional.resized_crop(picture, top, left, crop_height, crop_width, output, antialias=True)
        yield {"image": [height, width], "crop": [top, left, crop_height, crop_width], "output": output, **kept(result)}


def centres():
    for height, width, resize, *output in CENTRES:
        result = functional.center_crop(functional.resize(noise(height, width), resize, antialias=True), output)
        yield {"image": [height, width], "resize": resize, "output": output, **kept(result)}


def distributions():
    torch.manual_seed(1)
    for height, width in SIZES:
        picture = torch.empty(1, 1, 1).expand(3, height, width)
        draws = [RandomResizedCrop.get_params(picture, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(DRAWS)]
        draws = numpy.array(draws)
        numbers = dict(zip(["top", "left", "height", "width"], draws.T), area=draws[:, 2] * draws[:, 3])
        shares = {}
        for name, values in numbers.items():
            points = sorted({int(point) for point in numpy.quantile(values, QUANTILES, method="lower")})
            shares[name] = [[point, float(numpy.mean(values <= point))] for point in points]
        yield {"image": [height, width], "draws": DRAWS, "shares": shares}


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    vectors = {
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "crops": list(crops()),
        "centres": list(centres()),
        "distributions": list(distributions()),
    }
    lines = []
    for name, value in vectors.items():
        if isinstance(value, list):
            rows = ",\n".join("  " + json.dumps(row) for row in value)
            lines.append(f' {json.dumps(name)}: [\n{rows}\n ]')
        else:
            lines.append(f" {json.dumps(name)}: {json.dumps(value)}")
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
