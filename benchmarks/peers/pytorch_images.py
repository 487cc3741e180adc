#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
pytorch_images.py --images DIR [--only loader,resnet18,...] [--batch18 512] [--batch50 256] [--workers 16]
                  [--steps 40] [--warmup 10] [--limit SECONDS] [--json FILE] [--device cpu] [--image-size 224]

Training from JPEG files as PyTorch does it, beside `scripts/gpu-check images`: DIR is a folder with a directory for
each class (make_images writes one), on the same machine, from a warm page cache.

  loader-pillow     DataLoader alone: ImageFolder with Pillow, RandomResizedCrop, flip; batches of uint8
  loader            the same with torchvision.io's decode_jpeg and v2 transforms on tensors
  resnet50, resnet18                end to end: the second loader, pinned memory, non_blocking, normalised on the
                                    device; torch.compile (default), float16 autocast, GradScaler, channels_last
  resnet50-free, resnet18-free      the same with one batch that lies on the device

Each is a process of its own, ended after --limit. Prints images/s of the measured steps, and the last loss, as they
come, and keeps them in FILE. Training whose loss is not finite has failed. Exit status 1 when one failed. --device cpu
tries it without a GPU: no figure of it says anything.
Needs torch and torchvision; loader-pillow also Pillow.
"""

import argparse
import json
import pathlib
import signal
import sys
import time

import torch
import torchvision
from torchvision.transforms import v2

import own_process
import pytorch_ladder

ALL = ["loader", "resnet18", "resnet18-free", "resnet50", "resnet50-free", "loader-pillow"]
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Files(torchvision.datasets.DatasetFolder):
    """torchvision.io's decoder on the bytes of the files."""

    def __init__(self, directory, size):
        super().__init__(directory, self.decode, extensions=(".jpeg", ".jpg"))
        self.transform = v2.Compose([v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip()])

    @staticmethod
    def decode(path):
        return torchvision.io.decode_jpeg(torchvision.io.read_file(path), torchvision.io.ImageReadMode.RGB)


def pillow_files(directory, size):
    return torchvision.datasets.ImageFolder(
        directory, v2.Compose([v2.RandomResizedCrop(size), v2.RandomHorizontalFlip(), v2.PILToTensor()]))


def loader_of(data, batch, option):
    return torch.utils.data.DataLoader(
        data, batch, shuffle=True, drop_last=True, num_workers=option.workers, persistent_workers=True,
        pin_memory=option.device == "cuda", prefetch_factor=4)  # fmt: skip


def measure_loader(data, batch, option):
    batches = pytorch_ladder.forever(loader_of(data, batch, option))
    begin = time.perf_counter()
    next(batches)
    first = time.perf_counter() - begin
    for _ in range(option.warmup):
        next(batches)
    begin = time.perf_counter()
    for _ in range(option.steps):
        next(batches)
    return {"images_per_second": batch * option.steps / (time.perf_counter() - begin), "first_batch_seconds": first}


def make_step(model_name, classes, option):
    """A training step of (images, labels) on the device; it returns the loss there."""
    device, on_gpu = torch.device(option.device), option.device == "cuda"
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    model = pytorch_ladder.resnet(model_name, classes).to(device, memory_format=torch.channels_last)
    forward = torch.compile(model) if on_gpu else model
    loss_of = torch.nn.CrossEntropyLoss()
    optimizer = pytorch_ladder.sgd(model)
    scaler = torch.amp.GradScaler(option.device)

    def step(images, labels):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(option.device, torch.float16):
            loss = loss_of(forward(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def timed(step, get, batch, option):
    """Images/s and CPU cores of the measured steps behind the warm-up, and the last loss."""
    wait = torch.cuda.synchronize if option.device == "cuda" else lambda: None
    for _ in range(option.warmup):
        step(*get())
    wait()
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in range(option.steps):
        loss = step(*get())
    wait()
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    result = {"images_per_second": batch * option.steps / seconds, "batch": batch, "cpu_cores": cpu / seconds}
    return pytorch_ladder.with_loss(result, loss.item())


def measure_training(name, option):
    model_name, free = name.removesuffix("-free"), name.endswith("-free")
    batch = option.batch50 if model_name == "resnet50" else option.batch18
    device = torch.device(option.device)
    data = Files(option.images, option.image_size)
    step = make_step(model_name, len(data.classes), option)
    mean = torch.tensor(MEAN, device=device).view(1, 3, 1, 1) * 255
    scale = 1 / (torch.tensor(DEVIATION, device=device).view(1, 3, 1, 1) * 255)

    def to_device(pair):
        images, labels = (tensor.to(device, non_blocking=True) for tensor in pair)
        return ((images.float() - mean) * scale).contiguous(memory_format=torch.channels_last), labels

    batches = pytorch_ladder.forever(loader_of(data, batch, option))
    fixed = to_device(next(batches)) if free else None
    result = timed(step, (lambda: fixed) if free else (lambda: to_device(next(batches))), batch, option)
    del result["cpu_cores"]  # The loader's processes are not among them.
    return result


def measure(name, option):
    if name == "loader":
        return measure_loader(Files(option.images, option.image_size), option.batch50, option)
    if name == "loader-pillow":
        return measure_loader(pillow_files(option.images, option.image_size), option.batch50, option)
    return measure_training(name, option)


def arguments(usage, names):
    parser = argparse.ArgumentParser(usage=usage.strip())
    parser.add_argument("--images", required=True)
    parser.add_argument("--batch18", type=int, default=512)
    parser.add_argument("--batch50", type=int, default=256)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--limit", type=float, default=150, metavar="SECONDS")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--only", type=lambda text: text.split(","), default=names)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)  # here, into --json
    return parser


def run_all(parser, names, of_name, versions):
    """Each name in a process of its own, which calls of_name(name, option). Returns the exit status."""
    option = parser.parse_args()
    if option.device == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU (--device cpu tries it without one)")
    if wrong := set(option.only) - set(names):
        sys.exit(f"--only: there is no {', '.join(sorted(wrong))}")
    if option.one:
        option.json.write_text(json.dumps(of_name(option.one, option)))
        return 0
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # A child does not outlive this.
    where = torch.cuda.get_device_name() if option.device == "cuda" else "on the CPU: no figure for a GPU"
    print(f"{versions}, {where}", flush=True)
    results = {}
    for name in option.only:
        results[name] = own_process.measure(["--one", name], option.limit)
        speed, loss = (results[name].get(key) for key in ("images_per_second", "loss"))
        told = f"{speed:10.1f} images/s" if speed else results[name]["failed"]
        print(f"{name:16}{told}" + (f", loss {loss:.4f}" if loss is not None else ""), flush=True)
        if option.json:
            option.json.write_text(json.dumps(results, indent=1) + "\n")
    return any("failed" in result for result in results.values())


def main():
    versions = f"PyTorch {torch.__version__}, torchvision {torchvision.__version__}"
    return run_all(arguments(__doc__, ALL), ALL, measure, versions)


if __name__ == "__main__":
    sys.exit(main())
