# SPDX-License-Identifier: Apache-2.0
"""The GPT of examples/gpt in PyTorch: the same parameters at the start, and the same steps."""

import math

import numpy
import torch
from torch.nn import functional


def mix(x):
    with numpy.errstate(over="ignore"):
        x = x + numpy.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        return x ^ (x >> numpy.uint64(31))


def uniform(seed, begin, count):
    """gpt::initial_value(seed, begin) and the next ones."""
    numbers = mix(mix(numpy.array([seed], numpy.uint64)) ^ numpy.arange(begin, begin + count, dtype=numpy.uint64))
    return (numbers >> numpy.uint64(40)).astype(numpy.float64) * 2.0**-23 - 1


class Gpt:
    """`options` are those of gpt::ModelOptions."""

    def __init__(self, options, seed, dtype=torch.float64):
        self.heads, self.layers = options["heads"], options["layers"]
        channels, usual = options["channels"], 0.02 * math.sqrt(3)
        residual = usual / math.sqrt(2 * self.layers)
        self.matrices, self.norms, self.step_number, begin = {}, {}, 0, 0

        def add(name, rows, columns, span):
            nonlocal begin
            values = span * uniform(seed, begin, rows * columns)
            begin += rows * columns
            # Exact weights are float in the float precisions.
            rounded = torch.tensor(values).to(dtype).reshape(rows, columns)
            self.matrices[name] = rounded.requires_grad_()

        add("wte", options["vocabulary"], channels, usual)
        add("wpe", options["length"], channels, usual)
        for i in range(self.layers):
            add(f"h.{i}.attn.c_attn", 3 * channels, channels, usual)
            add(f"h.{i}.attn.c_proj", channels, channels, residual)
            add(f"h.{i}.mlp.c_fc", 4 * channels, channels, usual)
            add(f"h.{i}.mlp.c_proj", channels, 4 * channels, residual)
        for name in [f"h.{i}.ln_{k}" for i in range(self.layers) for k in (1, 2)] + ["ln_f"]:
            self.norms[name] = torch.ones(channels, dtype=dtype, requires_grad=True)
        self.optimizer = torch.optim.AdamW([{"params": list(self.matrices.values()), "weight_decay": 0.1},
                                            {"params": list(self.norms.values()), "weight_decay": 0.0}],
                                           betas=(0.9, 0.95), eps=1e-8)  # fmt: skip

    def parameters(self):
        return {**self.matrices, **self.norms}

    def loss(self, tokens, targets, positions):
        """Of integer tensors, sequence x token. The documents are counted by where positions begin anew."""
        length, matrix = tokens.shape[1], self.matrices
        documents = (positions == 0).cumsum(1)
        seen = (documents[:, :, None] == documents[:, None, :]) & torch.ones(length, length, dtype=torch.bool).tril()

        def norm(x, name):
            return functional.layer_norm(x, x.shape[-1:], self.norms[name])

        def split(x):
            return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        x = matrix["wte"][tokens] + matrix["wpe"][positions]
        for i in range(self.layers):
            q, k, v = (norm(x, f"h.{i}.ln_1") @ matrix[f"h.{i}.attn.c_attn"].T).chunk(3, -1)
            mixed = functional.scaled_dot_product_attention(split(q), split(k), split(v), attn_mask=seen[:, None])
            x = x + mixed.transpose(1, 2).flatten(2) @ matrix[f"h.{i}.attn.c_proj"].T
            wide = functional.gelu(norm(x, f"h.{i}.ln_2") @ matrix[f"h.{i}.mlp.c_fc"].T, approximate="tanh")
            x = x + wide @ matrix[f"h.{i}.mlp.c_proj"].T
        logits = norm(x, "ln_f") @ matrix["wte"].T
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)

    def step(self, batch, rate, clip):
        """Returns the loss, and the norm of the gradients before they are clipped."""
        loss = self.loss(*batch)
        self.optimizer.zero_grad()
        loss.backward()
        gradients = [parameter.grad for parameter in self.parameters().values()]
        norm = math.sqrt(sum(float(gradient.double().square().sum()) for gradient in gradients))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if norm > clip:
            for gradient in gradients:
                gradient *= clip / norm
        self.optimizer.step()
        return float(loss.detach()), norm
