#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
scripts/launch -n 2 -- python3 benchmarks/peers/pytorch_ddp.py [--model resnet50] [--batch 256] [--eager]
                  [--steps 40] [--warmup 15] [--image-size 224] [--json FILE] [--device cpu]

PyTorch's DistributedDataParallel, beside T13: the same model, batch and precision (float16 autocast, GradScaler,
channels_last), torch.compile unless --eager, on one batch that lies on the device. Runs under any launcher that
sets torchrun's variables; without one it is one rank. Rank 0 prints images/s of all ranks together and its last loss, and
keeps them in FILE. A rank whose loss is not finite fails. --device cpu, with gloo, tries it without a GPU: no figure of it says anything. Needs torch.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed

import pytorch_ladder


def model_of(option, device):
    torch.manual_seed(1)
    model = pytorch_ladder.resnet(option.model).to(device, memory_format=torch.channels_last)
    if not option.eager:
        model = torch.compile(model)  # Around DDP it was no faster than eager, on two H200 (PyTorch 2.11).
    if torch.distributed.is_initialized():
        devices = [device.index] if device.type == "cuda" else None
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
    return model


def measure(option, device):
    torch.backends.cudnn.benchmark = True
    model, loss_of = model_of(option, device), torch.nn.CrossEntropyLoss()
    optimizer = pytorch_ladder.sgd(model)
    scaler = torch.amp.GradScaler(option.device)
    size = option.image_size
    images = torch.randn(option.batch, 3, size, size, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (option.batch,), device=device)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(option.device, torch.float16):
            loss = loss_of(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    wait = torch.cuda.synchronize if option.device == "cuda" else lambda: None
    for _ in range(option.warmup):
        step()
    wait()
    begin = time.perf_counter()
    for _ in range(option.steps):
        loss = step()
    wait()
    return time.perf_counter() - begin, loss.item()


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warmup", type=int, default=15)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    option = parser.parse_args()
    ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    device = torch.device(option.device, int(os.environ.get("LOCAL_RANK", 0)) if option.device == "cuda" else None)
    if option.device == "cuda":
        torch.cuda.set_device(device)
    if ranks > 1:
        torch.distributed.init_process_group("nccl" if option.device == "cuda" else "gloo")
    seconds, loss = measure(option, device)
    result = pytorch_ladder.with_loss({"images_per_second": ranks * option.batch * option.steps / seconds, "ranks": ranks,
                                       "batch": option.batch, "torch": torch.__version__}, loss)  # fmt: skip
    if "failed" in result:
        sys.exit(f"rank {rank}: {result['failed']}")
    if rank == 0:
        print(f"PyTorch {torch.__version__}, {ranks} ranks: {result['images_per_second']:.1f} images/s, loss {loss:.4f}",
              flush=True)  # fmt: skip
        if option.json:
            option.json.write_text(json.dumps(result) + "\n")
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
