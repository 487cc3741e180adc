#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
scaling_model.py [--write | --check]

Computes a model of T13 training ResNet-50 on 1 to 1,024 GPUs: bytes, links, the time of a step, and what the input needs. It
prints its tables. --write puts them into docs/measured/many-gpus.md. --check, for CI, has exit status 1 if the page has other
tables. Every number that is not computed is in FIGURES, with its unit and its origin.
"""

import argparse
import collections
import math
import pathlib
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
import measured_page

PAGE = ROOT / "docs/measured/many-gpus.md"
GPUS = (1, 2, 4, 8, 64, 1024)
NODE = 8  # GPUs, and network adapters that carry gradients
MIB, GB = 1 << 20, 1e9
RING, TREE, SHORT_TREE = 0, 1, 2  # in FIGURES["latencies"]
GPU_TABLE = "[several GPUs](several-gpus.md#what-scales-and-what-does-not)"
IMAGES = "[images](images.md#an-h200)"
GITHUB = "https://github.com/"
NCCL = f"[NCCL 2.30.7]({GITHUB}NVIDIA/nccl/blob/5067397c2676d5aed50042fc39e5c8ee96eb0027/src/graph/tuning.cc)"
H200 = (f"[MLPerf 4.1, NVIDIA's system of 8 H200]({GITHUB}mlcommons/inference_results_v4.1/blob/main/closed/NVIDIA/systems/"
        "H200-SXM-141GBx8_TRT_MaxQ.json)")  # fmt: skip
PACKED = "[packed files](storage.md#packed-files)"
STORAGE = f"[MLPerf Storage]({GITHUB}mlcommons/storage)"
IMAGENET = "[ImageNet](https://www.image-net.org/challenges/LSVRC/2012/)"

Figure = collections.namedtuple("Figure", "value unit kind what source")
FIGURES = {
    "batch": Figure(256, "images", "measured", "batch of a GPU", GPU_TABLE),
    "one_gpu": Figure(8949, "images/s", "measured", "T13 on one GPU, one batch on the device", GPU_TABLE),
    "two_gpus": Figure(17501, "images/s", "measured", "on two", GPU_TABLE),
    "bus": Figure(289.7, "GB/s", "measured", "all-reduce on two GPUs: from 8 MiB in 47 us to 97.5 MiB in 371 us", GPU_TABLE),
    "wait_of_two": Figure(0.25, "ms", "measured", "a step is longer where two ranks wait for each other: 0.2 to 0.3", GPU_TABLE),
    "sums_cost": Figure(0.23, "ms", "measured", "kernels of a step take longer beside the sums of two GPUs", GPU_TABLE),
    "engine_cores": Figure(1.6 / 7204, "cores s/image", "measured", "1.6 cores at 7,204 images/s: the engines decode", IMAGES),
    "cpu_cores": Figure(9 / (0.991 * 7352), "cores s/image", "measured",
                        "9 cores at 0.991 of 7,352 images/s: the CPU decodes", IMAGES),
    "record": Figure(32 + 37, "bytes", "measured", "memory for a record of a `PackedFile`, name of 37 bytes", PACKED),
    "nvlink": Figure(450, "GB/s", "vendor", "NVLink of a GPU (NV18) in one direction: half of 900", H200),
    "nic": Figure(50, "GB/s", "vendor", "InfiniBand NDR, an adapter in one direction: 400 Gbit/s", H200),
    "latencies": Figure(((8.4, 3.4, 14.0), (8.4, 4.0, 14.0), (6.8, 0.6, 5.0)), "us", "vendor",
                        "to begin, a step over NVLink, over the network: a ring; a tree; a tree with little data (LL)", NCCL),
    "ring_delay": Figure(1.4, "times", "vendor", "latency of a ring over several nodes", NCCL),
    "tree_part": Figure(0.92 * 0.7, "times", "vendor", "a tree's bandwidth over a ring's, at 8 to 32 MiB", NCCL),
    "sample": Figure(114_660, "bytes", "vendor", "a JPEG file of ImageNet", STORAGE),
    "data_set": Figure(1_281_167, "samples", "vendor", "ImageNet's training set", IMAGENET),
    "nic_part": Figure(0.9, "times", "assumed", "of a network adapter's bandwidth that NCCL reaches", ""),
    "backward": Figure(2 / 3, "times", "assumed", "of a step: the backward pass, in proportion to multiplications", ""),
    "disk": Figure(1.0, "GB/s", "assumed", "at which rank 0 writes a checkpoint", ""),
}
KINDS = {"measured": "measured by us", "vendor": "published by others", "assumed": "assumed"}


def value(name):
    return FIGURES[name].value


# ---- The network and its buckets --------------------------------------------------------------------------------------

Unit = collections.namedtuple("Unit", "weights others work")  # elements, elements, multiplications for an image


def resnet50(classes, image=224):
    """Returns the units whose gradients the backward pass reports together (the last layer, a block, the stem), in the order of the
    forward pass. Parameters begin at multiples of 64 elements, and the stem's input has 4 channels (model/parameters.cpp)."""

    def aligned(count):
        return -(-count // 64) * 64

    def convolution(inputs, outputs, kernel, side):
        weights = inputs * outputs * kernel * kernel
        return Unit(aligned(weights), 2 * aligned(outputs), weights * side * side)

    def total(parts):
        return Unit(*(sum(column) for column in zip(*parts)))

    side = image // 4
    units, inputs = [convolution(4, 64, 7, image // 2)], 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            before, side = side, side // 2 if stage > 0 and block == 0 else side
            parts = [convolution(inputs, width, 1, before), convolution(width, width, 3, side),
                     convolution(width, 4 * width, 1, side)]  # fmt: skip
            if block == 0:
                parts.append(convolution(inputs, 4 * width, 1, side))
            units.append(total(parts))
            inputs = 4 * width
    return [*units, Unit(aligned(inputs * classes), aligned(classes), inputs * classes)]


def buckets(units, element=2, first=MIB, others=25 * MIB):
    """Returns the buckets as GradientBuckets makes them: (bytes of weights, bytes of the others, work of the layers still to come)."""
    made, weights, rest, least = [], 0, 0, first
    left = sum(unit.work for unit in units)
    for unit in reversed(units):
        weights, rest, left = weights + unit.weights * element, rest + unit.others * 4, left - unit.work
        if weights >= least or unit is units[0]:
            made.append((weights, rest, left))
            weights, rest, least = 0, 0, others
    return made


# ---- Communication: microseconds --------------------------------------------------------------------------------------


def per_gpu(size, gpus):
    """Returns the bytes that each GPU sends in an all-reduce, and as many that it receives."""
    return 2 * (gpus - 1) / gpus * size


def nodes_of(gpus):
    return max(1, gpus // NODE)


def bandwidth(gpus):
    """Returns the bytes that a GPU sends in a microsecond while all GPUs of its node send. A node sends as much to the
    next node as one GPU sends, by all of its adapters."""
    network = NODE * value("nic") * value("nic_part") if nodes_of(gpus) > 1 else math.inf
    return min(value("bus"), value("nvlink"), network) * GB / 1e6


def ring(size, gpus):
    nodes, (begin, near, far) = nodes_of(gpus), value("latencies")[RING]
    latency = begin + 2 * (gpus - nodes) * near + 2 * (nodes - 1) * far if nodes > 1 else begin + 2 * (gpus - 1) * near
    return latency * (value("ring_delay") if nodes > 1 else 1) + per_gpu(size, gpus) / bandwidth(gpus)


def tree(size, gpus, latencies=TREE, part=None):
    nodes, (begin, near, far) = nodes_of(gpus), value("latencies")[latencies]
    latency = begin + 2 * ((min(gpus, NODE) - 1) * near + math.log2(nodes) * far)
    return latency + 2 * size / (bandwidth(gpus) * (part or value("tree_part")))


def all_reduce(size, gpus):
    """Returns the time of the faster algorithm, which NCCL chooses too."""
    return min(ring(size, gpus), tree(size, gpus)) if gpus > 1 else 0.0


def bucket_time(bucket, gpus):
    """Returns the time of two calls: the weights in fp16, and the rest, which is small, in fp32."""
    return all_reduce(bucket[0], gpus) + tree(bucket[1], gpus, SHORT_TREE, 0.25) if gpus > 1 else 0.0


# ---- A step: milliseconds ---------------------------------------------------------------------------------------------


def largest_of(count):
    """Returns the mean of the largest of so many independent numbers of the standard normal distribution."""
    width, total, below = 1e-3, 0.0, 0.0
    for i in range(-9000, 9001):
        here = (0.5 * (1 + math.erf(i * width / math.sqrt(2)))) ** count
        total += (i - 0.5) * width * (here - below)
        below = here
    return total


Step = collections.namedtuple("Step", "alone slowest sums exposed hidden total rate part")


def step(gpus, units):
    alone = 1000 * value("batch") / value("one_gpu")
    slowest = value("wait_of_two") / largest_of(2) * largest_of(gpus) if gpus > 1 else 0.0
    sums = value("sums_cost") * per_gpu(1, gpus)
    made = buckets(units)
    *early, before_last, last = (bucket_time(bucket, gpus) / 1000 for bucket in made)
    room = value("backward") * alone * made[-2][2] / sum(unit.work for unit in units)  # the backward pass behind that one
    exposed = last + max(0.0, before_last - room)
    total = alone + slowest + sums + exposed
    hidden = sum(early) + min(before_last, room)
    return Step(alone, slowest, sums, exposed, hidden, total, 1000 * gpus * value("batch") / total, alone / total)


# ---- The tables -------------------------------------------------------------------------------------------------------


def table(head, rows):
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def milliseconds(value):
    return f"{value:.2f}"


def size_of(value):
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.0f} bytes"


def gradients_table():
    head = ["gradients of a step", "weights, fp16", "all else, fp32", "buckets, in the order of the backward pass"]
    rows = []
    for classes in (10, 1000):
        made = buckets(resnet50(classes))
        weights, others, _ = (sum(column) / MIB for column in zip(*made))
        rows.append([f"{classes:,} classes", f"{weights:.1f} MiB", f"{others:.2f} MiB",
                     ", ".join(f"{bucket[0] / MIB:.1f}" for bucket in made) + " MiB"])  # fmt: skip
    return table(head, rows)


def step_table():
    units = resnet50(10)
    steps = [step(gpus, units) for gpus in GPUS]
    size = sum(b[0] + b[1] for b in buckets(units))

    def busy(sent, link, total):
        return f"{size_of(sent)}, {100 * sent / (value(link) * GB) / (total / 1000):.1f} %"

    measured = {1: "1", 2: f"{value('two_gpus') / 2 / value('one_gpu'):.3f}"}

    def row(name, cell):
        return [name, *(cell(gpus, one) for gpus, one in zip(GPUS, steps))]

    return table(
        ["GPUs", *(f"{gpus:,}" for gpus in GPUS)],
        [row("a GPU sends over NVLink; of its time",
             lambda gpus, s: busy(per_gpu(size, gpus), "nvlink", s.total) if gpus > 1 else "-"),
         row("an adapter sends; of its time",
             lambda gpus, s: busy(per_gpu(size, gpus) / NODE, "nic", s.total) if gpus > NODE else "-"),
         row("sums, hidden: us", lambda gpus, s: f"{1000 * s.hidden:,.0f}"),
         row("sums, exposed: us", lambda gpus, s: f"{1000 * s.exposed:.0f}"),
         row("... its weights by a ring", lambda gpus, _: f"{ring(buckets(units)[-1][0], gpus):,.0f}" if gpus > 1 else "-"),
         row("one GPU's step: ms", lambda gpus, s: milliseconds(s.alone)),
         row("+ the slowest rank", lambda gpus, s: milliseconds(s.slowest)),
         row("+ kernels beside sums", lambda gpus, s: milliseconds(s.sums)),
         row("+ exposed sums", lambda gpus, s: milliseconds(s.exposed)),
         row("**= a step: ms**", lambda gpus, s: milliseconds(s.total)),
         row("**images/s**", lambda gpus, s: f"{float(f'{s.rate:.4g}'):,.0f}"),
         row("**over one GPU, by each**", lambda gpus, s: f"{s.part:.3f}"),
         row("measured", lambda gpus, _: measured.get(gpus, ""))])  # fmt: skip


def input_table():
    units = resnet50(1000)
    steps = {gpus: step(gpus, resnet50(10)) for gpus in GPUS}
    size = sum(b[0] for b in buckets(units)) / 2 * 8  # parameters and momenta, fp32

    def row(name, cell):
        return [name, *(cell(gpus, min(gpus, NODE), steps[gpus].rate) for gpus in GPUS)]

    return table(
        ["GPUs", *(f"{gpus:,}" for gpus in GPUS)],
        [row("read from storage, a node", lambda gpus, here, rate: size_of(rate / gpus * here * value("sample")) + "/s"),
         row("... all", lambda gpus, here, rate: size_of(rate * value("sample")) + "/s"),
         row("cores of a node, the engines decode", lambda gpus, here, rate: f"{rate / gpus * here * value('engine_cores'):.0f}"),
         row("cores of a node, the CPU decodes", lambda gpus, here, rate: f"{rate / gpus * here * value('cpu_cores'):.0f}"),
         row("pinned memory of a node", lambda gpus, here, _: size_of(here * 4 * 2 * value("batch") * 224 * 224 * 3)),
         row("index of a `PackedFile`, a node: ImageNet",
             lambda gpus, here, _: size_of(here * value("record") * value("data_set"))),
         row("... 10^9 samples", lambda gpus, here, _: size_of(here * value("record") * 1e9)),
         row("batch of all", lambda gpus, *_: f"{gpus * value('batch'):,}"),
         row("steps in an epoch of ImageNet", lambda gpus, *_: f"{value('data_set') / gpus / value('batch'):,.1f}"),
         row("seconds of it", lambda gpus, _, rate: f"{value('data_set') / rate:.3g}"),
         row("seconds of a checkpoint, " + size_of(size), lambda *_: f"{size / GB / value('disk'):.1f}")])  # fmt: skip


def fit():
    """Compares the model with measured all-reduces of two GPUs."""
    measured = {97.5: 371, 48.8: 198, 25: 111, 8: 47, 1: 36}
    shown = ", ".join(f"{size} MiB in {all_reduce(size * MIB, 2):.0f} us ({found})" for size, found in measured.items())
    return "All-reduces of two GPUs by the model (measured): " + shown + "."


def figures_table():
    def shown(value):
        if isinstance(value, tuple):
            return ("; " if isinstance(value[0], tuple) else ", ").join(map(shown, value))
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if value >= 100 else f"{value:.3g}"

    rows = [[f"{one.what}: {shown(one.value)} {one.unit}", KINDS[one.kind], one.source] for one in FIGURES.values()]
    return table(["figure", "", ""], rows).replace("| ---: | ---: |", "|---|---|")


TABLES = {"step": lambda: "\n\n".join((gradients_table(), step_table(), fit())), "input": input_table, "figures": figures_table}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    option = parser.parse_args()
    if not option.write and not option.check:
        print("\n\n".join(make() for make in TABLES.values()))
        return 0
    before = text = PAGE.read_text()
    for name, make in TABLES.items():
        begin, end = f"<!-- scripts/scaling_model.py --write: {name} -->", f"<!-- {name}: end -->"
        text = measured_page.between_markers(PAGE, text, begin, end, make())
    if option.write:
        measured_page.replace(PAGE, text)
    elif text != before:
        print(f"{PAGE.relative_to(ROOT)} does not have the model's tables: scripts/scaling_model.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
