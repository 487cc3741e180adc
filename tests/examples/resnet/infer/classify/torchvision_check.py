#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
torchvision_check.py --prepare PREPARE --classify CLASSIFY [--out DIRECTORY] [--pictures 2000] [--image-size 224]
                     [--steps 150] [--batch 64] [--precisions fp16,int8] [--device cuda] [--json FILE]

Does `classify` see what torchvision sees? Made into DIRECTORY: pictures of ten kinds (JPEG, every tenth a PNG; of many
sizes, some without colours), torchvision's ResNet-18 trained on them for --steps steps, saved in safetensors under its
own names, and the same pictures as CIFAR-10 records, of which int8 takes its scales. Then, for each precision,
`prepare` and `classify --json`, whose answers are compared with those of the network in PyTorch, in float32 without
TF32, of the same files, opened by Pillow and framed by torchvision. Between the pictures lies a damaged JPEG, which
must be told and skipped, and a file of text, which is none.

Ends with a table: agreement, the largest lead (in probability) that a class had which classify did not name,
images/s and latencies. Exit status 1 when fp16 agrees on less than 0.999 of them, when classify's exit status is
another than 1 (some skipped), or when an answer is missing; int8's agreement is only shown. Needs Python's torch,
torchvision, Pillow, safetensors. Without a GPU: the emulated programs, --device cpu and a small --image-size.
"""

import argparse
import json
import math
import multiprocessing
import pathlib
import shutil
import subprocess
import sys

import numpy
import torch
import torchvision
from PIL import Image
from safetensors.torch import save_file
from torchvision.transforms import functional as transforms

KINDS = 10
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
LEAST = {"fp16": 0.999}
RECORD_SIZE = 32
BROKEN = "0500_broken.jpg"
TOLD = 20  # lines of what classify says on its standard error output


# ---- Pictures --------------------------------------------------------------------------------------


def pattern(kind, random, height, width):
    """From 0 to 1: where a picture has its one colour, and where its other."""
    y, x = numpy.mgrid[0:height, 0:width] / min(height, width)
    turn, scale = random.uniform(0, math.pi), random.uniform(4, 12)
    u, v = x * math.cos(turn) + y * math.sin(turn), y * math.cos(turn) - x * math.sin(turn)
    radius = numpy.hypot(x - random.uniform(0.3, 0.7), y - random.uniform(0.3, 0.7))
    return {
        0: lambda: u - u.min(),  # a ramp
        1: lambda: 0.5 + 0.5 * numpy.sin(6 * scale * u),  # waves
        2: lambda: (numpy.floor(scale * u) + numpy.floor(scale * v)) % 2,  # a chessboard
        3: lambda: radius < 0.25,  # a disc
        4: lambda: 0.5 + 0.5 * numpy.sin(8 * scale * radius),  # rings
        5: lambda: abs(u - u.mean()) < 0.1,  # a bar
        6: lambda: (abs(u - u.mean()) < 0.06) | (abs(v - v.mean()) < 0.06),  # a cross
        7: lambda: random.random((height, width)),  # noise
        8: lambda: (numpy.hypot((scale * u) % 1 - 0.5, (scale * v) % 1 - 0.5) < 0.3),  # dots
        9: lambda: numpy.sin(2 * scale * u) * numpy.sin(3 * scale * v) > 0.4,  # islands
    }[kind]().clip(0, 1).astype(float)  # fmt: skip


def draw(task):
    """Writes picture `number`; its name says what it is: 0042_2.jpg."""
    directory, number = task
    random = numpy.random.default_rng(number)
    height, width = (int(side) for side in random.integers(96, 640, 2))
    mask = pattern(number % KINDS, random, height, width)[:, :, None]
    one, other = random.uniform(0, 100, 3), random.uniform(130, 255, 3)
    pixels = mask * one + (1 - mask) * other + random.normal(0, 8, (height, width, 3))
    picture = Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8))
    if number % 17 == 0:
        picture = picture.convert("L")
    name = directory / f"{number:04}_{number % KINDS}"
    picture.save(f"{name}.png") if number // KINDS % 10 == 3 else picture.save(
        f"{name}.jpg", quality=int(random.integers(70, 96))
    )


def framed(task):
    """As torchvision's evaluation frames it: bytes, 3 x size x size."""
    path, size = task
    picture = transforms.resize(Image.open(path).convert("RGB"), (size * 256 + 112) // 224)
    return numpy.asarray(transforms.center_crop(picture, size)).transpose(2, 0, 1)


def make_pictures(directory, count):
    """Their paths, without what is no picture."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    with multiprocessing.Pool() as pool:
        pool.map(draw, [(directory, number) for number in range(count)])
    paths = sorted(directory.iterdir())
    whole = next(path for path in paths if path.suffix == ".jpg").read_bytes()
    (directory / BROKEN).write_bytes(whole[: len(whole) // 2])
    (directory / "notes.txt").write_text("no picture\n")
    return paths


def write_records(directory, images, labels):
    """The format of CIFAR-10's binary version: five files to train, one to test."""
    directory.mkdir(exist_ok=True)
    small = transforms.resize(images, [RECORD_SIZE, RECORD_SIZE], antialias=True)
    rows = torch.cat([labels[:, None].to(torch.uint8), small.flatten(1)], 1).numpy()
    for part, name in enumerate([*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]):
        (directory / name).write_bytes(rows[part::6].tobytes())


# ---- The network -----------------------------------------------------------------------------------


def normalised(images, device):
    images = images.to(device).float() / 255
    return transforms.normalize(images, MEAN, DEVIATION)


def train(images, labels, option):
    """Not for long: what counts is that different pictures have different answers."""
    torch.manual_seed(1)
    network = torchvision.models.resnet18(weights=None, num_classes=KINDS).to(option.device)
    optimizer = torch.optim.SGD(network.parameters(), 0.02, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=option.steps)
    network.train()
    for _ in range(option.steps):
        some = torch.randint(len(images), (option.batch,))
        loss = torch.nn.functional.cross_entropy(
            network(normalised(images[some], option.device)), labels[some].to(option.device)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    print(f"trained for {option.steps} steps: loss {loss.item():.3f}", flush=True)
    return network.eval()


@torch.inference_mode()
def probabilities(network, images, option):
    parts = [network(normalised(part, option.device)).softmax(1).cpu() for part in images.split(option.batch)]
    return torch.cat(parts)


# ---- Comparing -------------------------------------------------------------------------------------


def run(command, statuses):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode not in statuses:
        sys.exit(
            f"{' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return done


def prepare(precision, option):
    prepared = option.out / f"resnet18-{precision}"
    done = run([option.prepare, "--weights", option.out / "resnet18.safetensors", "--model", "resnet18", "--image-size",
                option.image_size, "--precision", precision, "--batches", option.batch, "--check", 0,
                "--data", option.out / "records", "--out", prepared], [0])  # fmt: skip
    print(done.stdout, end="", flush=True)
    return prepared


def compare(precision, paths, wanted, option):
    """A row of the table."""
    done = run([option.classify, "--prepared", prepare(precision, option), "--json", option.out / "pictures"], range(3))
    print(*done.stderr.splitlines()[-TOLD:], sep="\n", flush=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    answers = {line["path"]: line["top"][0]["class"] for line in lines if "top" in line}
    skipped = [pathlib.Path(line["path"]).name for line in lines if "error" in line]
    leads = [
        (chances.max() - chances[answers[str(path)]]).item()
        for path, chances in zip(paths, wanted)
        if str(path) in answers
    ]
    different = [lead for lead in leads if lead > 0]
    agreement = 1 - len(different) / max(len(leads), 1)
    faults = []
    if done.returncode != 1:
        faults.append(f"exit status {done.returncode}, not 1")
    if len(leads) != len(paths) or len(lines) != len(paths) + 1:
        faults.append(f"{len(leads)} answers of {len(paths)}")
    if skipped != [BROKEN] or f"{BROKEN}: " not in done.stderr:
        faults.append(f"{len(skipped)} skipped: {', '.join(skipped[:5])}")
    if agreement < LEAST.get(precision, 0):
        faults.append(f"less than {100 * LEAST[precision]} %")
    return {"precision": precision, "pictures": len(leads), "agreement": agreement, "different": len(different),
            "largest_lead": max(leads, default=0), "faults": faults,
            "summary": done.stderr.splitlines()[-3:]}  # fmt: skip


def print_table(rows):
    print(f"\n{'':6}{'pictures':>9}{'agree %':>9}{'other class':>12}{'its lead':>9}  classify's own account")
    for row in rows:
        first, *more = row["summary"]
        print(f"{row['precision']:6}{row['pictures']:9}{100 * row['agreement']:9.2f}{row['different']:12}"
              f"{row['largest_lead']:9.4f}  {first}")  # fmt: skip
        for line in [*more, *(f"WRONG: {fault}" for fault in row["faults"])]:
            print(f"{'':47}{line}")


def options():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("--prepare", type=pathlib.Path, required=True)
    parser.add_argument("--classify", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("torchvision-check"))
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--precisions", type=lambda text: text.split(","), default=["fp16", "int8"])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--json", type=pathlib.Path)
    return parser.parse_args()


def main():
    option = options()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    paths = make_pictures(option.out / "pictures", option.pictures)
    with multiprocessing.Pool() as pool:  # before there is a CUDA context, which does not survive a fork
        images = torch.from_numpy(numpy.stack(pool.map(framed, [(path, option.image_size) for path in paths])))
    labels = torch.tensor([int(path.stem[-1]) for path in paths])
    write_records(option.out / "records", images, labels)
    network = train(images, labels, option)
    save_file(network.state_dict(), option.out / "resnet18.safetensors")
    wanted = probabilities(network, images, option)
    named = wanted.argmax(1)
    print(f"torchvision: right about {100 * (named == labels).float().mean():.1f} % of {len(paths)} pictures, "
          f"{len(named.unique())} classes named", flush=True)  # fmt: skip
    rows = [compare(precision, paths, wanted, option) for precision in option.precisions]
    if option.json:
        option.json.write_text(json.dumps(rows, indent=1) + "\n")
    print_table(rows)
    return 1 if any(row["faults"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
