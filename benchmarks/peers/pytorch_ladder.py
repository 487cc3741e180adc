#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
pytorch_ladder.py [--data DIR] [--model resnet18] [--batch 32] [--large-batch 512] [--image-size 224]
                  [--steps 15] [--warmup 5] [--repeat 1] [--workers 8] [--only T8,T9] [--compile MODE]
                  [--limit SECONDS] [--json FILE] [--device cpu]

The training ladder as PyTorch climbs it: the same model (torchvision's ResNet, written out here), images
(CIFAR-10 records, random crop and flip, bilinear resize, normalisation, by the loader's workers), batch sizes,
precisions and optimizer as examples/resnet/train's rungs, with PyTorch's own means for each optimization. To be
run on the same machine, right before or after `examples/resnet/train/ladder`.

  T1 eager, float32 (TF32 off), loader in the main process, loss read each step     T7 torch.compile
  T2 loader's workers      T4 non_blocking copies                                   T8 autocast to float16, GradScaler
  T3 pinned memory         T5 loss read at the end      T6 cudnn.benchmark          T9 channels_last
  T10 the large batch      T11 a copy stream            best: T9's step, large batch, data on the device from the start

Each rung keeps what the one before has, and is a process of its own, ended when it takes longer than --limit
(torch.compile's max-autotune may take many minutes; --compile default, or reduce-overhead, takes fewer): then the
others go on, and the limit is told in its place. Prints images/s of the measured steps, median of --repeat, and the
last loss, as they come, and keeps them in FILE, which `ladder --peer FILE` shows beside ours. A rung whose loss is not
finite has failed. Exit status 1 when a rung failed.

--device cpu, with a small model's image size and batch, tries the rungs on a machine without a GPU; its figures say
nothing of one, and there is no copy stream.
"""

import argparse
import json
import math
import pathlib
import signal
import statistics
import sys
import time

import torch
from torch import nn

import own_process

MEAN, DEVIATION = (125.307, 122.950, 113.865), (62.993, 62.089, 66.705)


# ---- The model ------------------------------------------------------------------------------------


class Block(nn.Module):
    """basic: 3x3, 3x3. bottleneck: 1x1, 3x3 with the stride ("v1.5"), 1x1 to four times the channels."""

    def __init__(self, channels_in, channels, stride, bottleneck):
        super().__init__()
        shapes = [(1, 1), (3, stride), (1, 1)] if bottleneck else [(3, stride), (3, 1)]
        out = channels * (4 if bottleneck else 1)
        widths = [channels_in, *[channels] * (len(shapes) - 1), out]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False)
            for a, b, (kernel, step) in zip(widths, widths[1:], shapes))  # fmt: skip
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for width in widths[1:])
        self.shortcut = None
        if stride != 1 or channels_in != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels_in, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        residual = x if self.shortcut is None else self.shortcut(x)
        for convolution, norm in zip(self.convolutions[:-1], self.norms[:-1]):
            x = torch.relu(norm(convolution(x)))
        return torch.relu(self.norms[-1](self.convolutions[-1](x)) + residual)


def resnet(name, classes=10):
    counts, bottleneck = {"resnet18": ((2, 2, 2, 2), False), "resnet50": ((3, 4, 6, 3), True)}[name]
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for stage, count in enumerate(counts):
        for block in range(count):
            channels = 64 << stage
            layers.append(Block(width, channels, 2 if stage > 0 and block == 0 else 1, bottleneck))
            width = channels * (4 if bottleneck else 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def sgd(model, fused=True):
    """SGD whose momentum is zero before the first step. PyTorch 2.11 gives the momentum of fused SGD no value when
    GradScaler skips the first step, and reads it in the second."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, fused=fused)
    for parameter in model.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def with_loss(result, loss):
    """The result with the last loss of its steps; a failure where that is not finite."""
    if not math.isfinite(loss):
        return {"failed": f"the loss of the last step is {loss}"}
    return {**result, "loss": loss}


# ---- The data -------------------------------------------------------------------------------------


class Records(torch.utils.data.Dataset):
    def __init__(self, directory, size):
        files = sorted(pathlib.Path(directory).glob("data_batch_*.bin"))
        if not files:
            sys.exit(f"{directory} has no data_batch_*.bin: make_cifar10 writes such a set")
        self.records = torch.cat([torch.frombuffer(bytearray(f.read_bytes()), dtype=torch.uint8) for f in files])
        self.records = self.records.view(-1, 3073)
        self.size = size
        self.mean = torch.tensor(MEAN).view(3, 1, 1)
        self.scale = 1 / torch.tensor(DEVIATION).view(3, 1, 1)

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        record = self.records[index]
        image = nn.functional.pad(record[1:].view(3, 32, 32), (4, 4, 4, 4))
        y, x = torch.randint(0, 9, (2,)).tolist()
        image = image[:, y : y + 32, x : x + 32].float()
        if torch.rand(()) < 0.5:
            image = image.flip(2)
        image = nn.functional.interpolate(image[None], self.size, mode="bilinear", align_corners=False)[0]
        return (image - self.mean) * self.scale, int(record[0])


def forever(loader):
    while True:
        yield from loader


# ---- One rung -------------------------------------------------------------------------------------


class CopyStream:
    """Batches on the device, the next one on its way while this one is computed."""

    def __init__(self, batches, to_device):
        self.batches, self.to_device, self.stream = batches, to_device, torch.cuda.Stream()
        self.fetch()

    def fetch(self):
        with torch.cuda.stream(self.stream):
            self.next = self.to_device(next(self.batches))

    def __next__(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.next
        for tensor in batch:
            tensor.record_stream(torch.cuda.current_stream())
        self.fetch()
        return batch


def run(rung, option, data):
    has = lambda number: rung == "best" or int(rung[1:]) >= number
    batch = option.large_batch if has(10) else option.batch
    memory = torch.channels_last if has(9) else torch.contiguous_format
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = has(6)
    torch.manual_seed(1)
    device, on_gpu = torch.device(option.device), option.device == "cuda"
    model = resnet(option.model).to(device, memory_format=memory)
    loss_of = nn.CrossEntropyLoss()
    optimizer = sgd(model, fused=has(7))
    scaler = torch.amp.GradScaler(option.device, enabled=has(8))
    forward = torch.compile(model, mode=option.compile) if has(7) else model

    def step(images, labels):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(option.device, torch.float16, enabled=has(8)):
            loss = loss_of(forward(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    def to_device(pair):
        images, labels = (tensor.to(device, non_blocking=has(4)) for tensor in pair)
        return images.to(memory_format=memory), labels

    workers = option.workers if has(2) and rung != "best" else 0
    loader = torch.utils.data.DataLoader(data, batch, shuffle=True, drop_last=True, num_workers=workers,
                                         pin_memory=has(3) and on_gpu, persistent_workers=workers > 0)  # fmt: skip
    batches = forever(loader)
    if rung == "best":
        fixed = to_device(next(batches))
        get = lambda: fixed
    elif has(11) and on_gpu:
        ahead = CopyStream(batches, to_device)
        get = lambda: next(ahead)
    else:
        get = lambda: to_device(next(batches))

    def steps(count):
        losses = []
        for _ in range(count):
            loss = step(*get())
            losses.append(loss if has(5) else loss.item())
        if on_gpu:
            torch.cuda.synchronize()
        return float(losses[-1])

    steps(option.warmup)
    speeds = []
    for _ in range(option.repeat):
        begin = time.perf_counter()
        loss = steps(option.steps)
        speeds.append(batch * option.steps / (time.perf_counter() - begin))
    versions = f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"
    return with_loss({"images_per_second": statistics.median(speeds), "all": speeds, "with": versions}, loss)


# ---- All of them ----------------------------------------------------------------------------------


def run_all(option):
    results = []
    for rung in option.only or [*[f"T{number}" for number in range(1, 12)], "best"]:
        batch = option.large_batch if rung == "best" or int(rung[1:]) >= 10 else option.batch
        result = {"rung": rung, "model": option.model, "image_size": option.image_size, "batch": batch}
        result.update(own_process.measure(["--rung", rung], option.limit))
        speed = result.get("images_per_second")
        told = f"{speed:10.1f} images/s, loss {result['loss']:.4f}" if speed else result["failed"]
        print(f"{rung:5} batch {batch:4} {told}", flush=True)
        results.append(result)
        if option.json:
            option.json.write_text(json.dumps(results, indent=1) + "\n")
    return any("failed" in result for result in results)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="resnet18", choices=["resnet18", "resnet50"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--large-batch", type=int, default=512)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--compile", default="max-autotune")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--rung", help=argparse.SUPPRESS)  # one, here, into --json
    option = parser.parse_args()
    if option.device == "cuda" and not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU (--device cpu tries the rungs without one)")
    if option.rung:
        option.json.write_text(json.dumps(run(option.rung, option, Records(option.data, option.image_size))))
        return 0
    Records(option.data, option.image_size)  # Is it there?
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # A child does not outlive this.
    where = torch.cuda.get_device_name() if option.device == "cuda" else "on the CPU: no figure for a GPU"
    print(f"{option.model}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {where}", flush=True)
    return run_all(option)


if __name__ == "__main__":
    sys.exit(main())
