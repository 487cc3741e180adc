#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train.py FOLDER [EPOCHS]: ResNet-18 from the JPEG files of FOLDER, a directory for each class, fed by penstock.

PYTHONPATH=build/cuda/examples/pytorch/cuda, or of the emulated build .../emulated, to try it on the CPU."""

import sys
import time

import torch
import torchvision

import penstock_loader  # after torch: both use the CUDA runtime that PyTorch brings


def main(folder, epochs=2):
    device = torch.device("cpu" if penstock_loader.ON_CPU else "cuda")
    batch, size = (8, 64) if penstock_loader.ON_CPU else (256, 224)
    with penstock_loader.ImageLoader(folder, batch_size=batch, size=size, epochs=epochs, seed=1) as loader:
        model = torchvision.models.resnet18(num_classes=len(loader.classes)).to(device, memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
        for epoch in range(epochs):
            begin, total = time.perf_counter(), torch.zeros((), device=device)
            for images, labels in loader:
                # No copy: PyTorch's current stream waits for the batch, and its tensors hold the lease.
                images = torch.from_dlpack(images).permute(0, 3, 1, 2)  # which is channels_last
                labels = torch.from_dlpack(labels).long()
                with torch.autocast(device.type, torch.bfloat16):
                    loss = torch.nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach()
                del images, labels, loss  # The lease ends: the slot is filled again when the step is through.
            mean, seconds = total.item() / len(loader), time.perf_counter() - begin
            print(f"epoch {epoch + 1}: loss {mean:.3f}, {len(loader) * batch / seconds:.0f} images/s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:])) if len(sys.argv) in (2, 3) else sys.exit(__doc__)
