#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pytorch_peers_test.py PEERS: the peers that train with PyTorch. The momentum is zero before the first step, also where
GradScaler skips that step, and a loss that is not finite is a failure. Without PyTorch it only reads their sources."""

import argparse
import importlib.util
import math
import pathlib
import sys
import tempfile

peers = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(peers))


def require(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def sources():
    """Fused SGD is made in one place."""
    for path in [*peers.glob("*.py"), *(peers.parents[1] / "examples/pytorch").glob("*.py")]:
        makes = [line.strip() for line in path.read_text().splitlines() if "optim.SGD(" in line and "fused" in line]
        require(len(makes) == (path.name == "pytorch_ladder.py"), f"{path.name} makes fused SGD: {makes}")


def first_step_is_skipped():
    """With deterministic algorithms PyTorch fills memory that has no value with NaN."""
    torch.use_deterministic_algorithms(True)
    require(torch.empty(1000).isnan().all(), "memory without a value is not filled")
    model = torch.nn.Linear(10, 10)
    optimizer, scaler = pytorch_ladder.sgd(model), torch.amp.GradScaler("cpu")
    before = model.weight.detach().clone()
    for factor in (math.inf, 1.0):
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(model(torch.ones(2, 10)).sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        changed = not torch.equal(before, model.weight)
        require(changed == (factor == 1.0), f"a gradient times {factor}: {'a' if changed else 'no'} step")
    for parameter in model.parameters():
        require(parameter.isfinite().all(), "the weights are not finite")
        require(optimizer.state[parameter]["momentum_buffer"].isfinite().all(), "the momentum is not finite")
    torch.use_deterministic_algorithms(False)


def first_step_is_plain_sgd():
    """A momentum of zero is what SGD begins with anyway."""
    weights = []
    for make in (pytorch_ladder.sgd, lambda model: torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9,
                                                                   weight_decay=5e-4)):  # fmt: skip
        torch.manual_seed(1)
        model = torch.nn.Linear(10, 10)
        optimizer = make(model)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 10)).square().sum().backward()
            optimizer.step()
        weights.append(model.weight.detach())
    require(torch.allclose(*weights, rtol=1e-6), "the steps are not those of SGD")


def loss_is_checked():
    option = argparse.Namespace(model="resnet18", batch=2, large_batch=2, image_size=32, steps=1, warmup=1, repeat=1,
                                workers=0, compile="default", device="cpu")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "data_batch_1.bin").write_bytes(bytes(8 * 3073))
        result = pytorch_ladder.run("T1", option, pytorch_ladder.Records(folder, option.image_size))
        require(math.isfinite(result["loss"]) and result["images_per_second"] > 0, result)
        pytorch_ladder.MEAN = (math.nan,) * 3
        result = pytorch_ladder.run("T1", option, pytorch_ladder.Records(folder, option.image_size))
        require(result == {"failed": "the loss of the last step is nan"}, result)


sources()
if importlib.util.find_spec("torch") is None:
    print("no PyTorch: only the sources were read")
    sys.exit(77)
import torch

import pytorch_ladder

torch.set_num_threads(1)
first_step_is_skipped()
first_step_is_plain_sgd()
loss_is_checked()
