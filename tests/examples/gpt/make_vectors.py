#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_vectors.py: prints the vectors that model_test.cpp compares with, computed by PyTorch on the CPU in float64.

    make_vectors.py > vectors.json                  needs torch and numpy

They are: a small model, the batches of twelve steps (two in turn), and the loss and the norm of the gradients of each step;
of the first step the norm of each parameter's gradient, and of the last the norm of each parameter.
"""

import json

import numpy
import torch
from gpt_pytorch import Gpt, uniform

OPTIONS = {"layers": 2, "heads": 2, "channels": 16, "length": 16, "vocabulary": 40, "batch": 3}
SEED, STEPS, RATE, CLIP = 5, 12, 0.02, 0.9


def batch(number):
    """Documents of 1 to 9 tokens. The last token of each, and some others, have no target."""
    count = OPTIONS["batch"] * OPTIONS["length"]
    values = lambda k, most: (uniform(100 + k, number * count, count) * 0.5 + 0.5) * most  # noqa: E731
    tokens, lengths = values(0, OPTIONS["vocabulary"]).astype(int), iter(1 + values(1, 9).astype(int))
    positions = []
    for _ in range(OPTIONS["batch"]):
        row = []
        while len(row) < OPTIONS["length"]:
            row += range(next(lengths))
        positions += row[: OPTIONS["length"]]
    targets = numpy.roll(tokens, -1)
    targets[(numpy.roll(positions, -1) == 0) | (values(2, 8) < 1)] = -100
    return [tokens.tolist(), targets.tolist(), positions]


def main():
    model, steps, gradients = Gpt(OPTIONS, SEED), [], {}
    for number in range(STEPS):
        fields = batch(number % 2)
        tensors = [torch.tensor(field).reshape(OPTIONS["batch"], OPTIONS["length"]) for field in fields]
        loss, norm = model.step(tensors, RATE, CLIP)
        if number == 0:  # They are clipped by now.
            scale = norm / min(norm, CLIP)
            gradients = {name: float(p.grad.norm()) * scale for name, p in model.parameters().items()}
        steps.append(dict(zip(("tokens", "targets", "positions"), fields), loss=loss, norm=norm))
    weights = {name: float(p.detach().norm()) for name, p in model.parameters().items()}
    document = {"torch": torch.__version__, "options": OPTIONS, "seed": SEED, "rate": RATE, "clip": CLIP,
                "first_gradients": gradients, "last_weights": weights, "steps": steps}  # fmt: skip
    print(json.dumps(document, indent=None, separators=(",", ":")).replace('{"tokens"', '\n{"tokens"'))


if __name__ == "__main__":
    main()
