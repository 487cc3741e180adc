#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
benchmark.py FOLDER [--module DIR] [--batch 256] [--size 224] [--workers N] [--steps 96] [--warmup 16] [--rounds 3]
             [--no-compile] [--json FILE] [--device cpu]

penstock and PyTorch's DataLoader by turns, on the same JPEG files with as many workers: FOLDER has a directory for
each class. DIR has the module penstock_loader (build/cuda/examples/pytorch/cuda).

Both give normalised float32 crops of the same rule (RandomResizedCrop, flip) on the device, channels_last.
DataLoader is torchvision at its best: decode_jpeg and v2 transforms on tensors of uint8, persistent workers, pinned
memory, non_blocking copies, normalised on the GPU. penstock decodes what a crop needs, and resizes and normalises on
the GPU.

  input   a step only reads the batch (its sum)
  train   ResNet-18: torch.compile, bfloat16 autocast, SGD
  free    the same with one batch that stays on the device: what training could reach

Prints images/s and the last loss as they come; at the end the medians of the rounds, and their ratios. A loss that is not
finite is an error. --device cpu tries it with the emulated module: no figure of it says anything. Needs torch and
torchvision.
"""

import argparse
import itertools
import json
import math
import os
import pathlib
import statistics
import sys
import time

import torch
import torchvision

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "benchmarks/peers"))
import pytorch_images  # noqa: E402
import pytorch_ladder  # noqa: E402


def of_penstock(option):
    with penstock_loader.ImageLoader(option.folder, batch_size=option.batch, size=option.size, workers=option.workers,
                                     epochs=1 << 30, seed=1) as loader:  # fmt: skip
        for images, labels in itertools.chain.from_iterable(itertools.repeat(loader)):
            yield torch.from_dlpack(images).permute(0, 3, 1, 2), torch.from_dlpack(labels).long()
            del images, labels


def of_dataloader(option):
    device = torch.device(option.device)
    mean = torch.tensor(pytorch_images.MEAN, device=device).view(1, 3, 1, 1) * 255
    scale = 1 / (torch.tensor(pytorch_images.DEVIATION, device=device).view(1, 3, 1, 1) * 255)
    data = pytorch_images.Files(option.folder, option.size)
    loader = pytorch_images.loader_of(data, option.batch, option)
    for images, labels in itertools.chain.from_iterable(itertools.repeat(loader)):
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        yield ((images.float() - mean) * scale).contiguous(memory_format=torch.channels_last), labels


def of_nothing(option):
    """One batch, again and again."""
    batches = of_penstock(option)
    images, labels = (tensor.clone() for tensor in next(batches))
    batches.close()
    yield from itertools.repeat((images, labels))


class Training:
    def __init__(self, option, classes):
        device = torch.device(option.device)
        model = torchvision.models.resnet18(num_classes=classes).to(device, memory_format=torch.channels_last)
        self.forward = torch.compile(model) if option.compile else model
        self.optimizer = pytorch_ladder.sgd(model)
        self.device = device.type

    def __call__(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(self.forward(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def measure(batches, step, option):
    """Images per second of the measured steps, and the last one's value: the loss, where it trains."""
    wait = torch.cuda.synchronize if option.device == "cuda" else lambda: None
    for number in range(option.warmup + option.steps):
        if number == option.warmup:
            wait()
            begin = time.perf_counter()
        images, labels = next(batches)
        value = step(images, labels)
        del images, labels
    wait()
    seconds = time.perf_counter() - begin
    batches.close()
    return option.batch * option.steps / seconds, value.item()


def table(results):
    def median(name):
        return statistics.median(results[name])

    lines = [f"{name:20}{median(name):10.0f} images/s  ({min(rates):.0f} to {max(rates):.0f})"
             for name, rates in results.items()]  # fmt: skip
    for step in ("input", "train"):
        ratio = median(f"{step} penstock") / median(f"{step} DataLoader")
        lines.append(f"{step}: penstock / DataLoader = {ratio:.2f}")
    lines.append(f"train: penstock / free = {median('train penstock') / median('train free'):.3f}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--module", type=pathlib.Path)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=96)
    parser.add_argument("--warmup", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    option = parser.parse_args()
    if option.module:
        sys.path.insert(0, str(option.module))
    global penstock_loader  # after torch: both use the CUDA runtime that PyTorch brings
    import penstock_loader

    if penstock_loader.ON_CPU != (option.device == "cpu"):
        sys.exit(f"--device {option.device}: {penstock_loader.__file__} is not for it")
    where = torch.cuda.get_device_name() if option.device == "cuda" else "on the CPU: no figure for a GPU"
    print(f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}, {where}; batches of {option.batch}, "
          f"{option.workers} workers", flush=True)  # fmt: skip
    conditions = {"torch": torch.__version__, "torchvision": torchvision.__version__, "device": where,
                  **{name: getattr(option, name) for name in ("batch", "size", "workers", "steps", "warmup", "compile")}}  # fmt: skip
    torch.backends.cudnn.benchmark = True
    classes = sum(path.is_dir() for path in option.folder.iterdir())
    steps = {"input": lambda images, labels: images.sum() + labels.sum(), "train": Training(option, classes)}
    jobs = [("train free", of_nothing), ("input penstock", of_penstock), ("input DataLoader", of_dataloader),
            ("train penstock", of_penstock), ("train DataLoader", of_dataloader)]  # fmt: skip
    results = {name: [] for name, _ in jobs}
    for number in range(option.rounds):
        for name, batches in jobs:
            rate, value = measure(batches(option), steps[name.split()[0]], option)
            if not math.isfinite(value):
                sys.exit(f"{name}: the last step's loss is {value}")
            results[name].append(rate)
            told = f", loss {value:.4f}" if name.startswith("train") else ""
            print(f"round {number + 1}: {name:20}{rate:10.0f} images/s{told}", flush=True)
            if option.json:
                option.json.write_text(json.dumps({**conditions, "images_per_second": results}, indent=1) + "\n")
    print(f"\n{table(results)}")


if __name__ == "__main__":
    main()
