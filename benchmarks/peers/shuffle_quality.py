#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
shuffle_quality.py [--samples N] [--classes N] [--batch N] [--epochs N] [--markdown]

How far shuffles that read storage in runs are from a full shuffle: Sampler with block and window, beside the rules of
MosaicML Streaming (py1s, py2s, py1br, py1e, one canonical node) and of FFCV (QUASI_RANDOM), which are written again here
from what their projects publish. The samples lie in storage sorted by class, as in an ImageFolder. Ours is the real one:
a program over the headers prints its order, which takes a C++20 compiler (CXX, else c++).

at hand        most samples of blocks that are begun and not yet finished: what a reader that reads each block once has to keep
displacement   mean distance between a sample's place in storage and in the epoch, in parts of the data set; full shuffle 1/3
label run      mean length of runs of one label
classes        different labels in a batch: the mean, the batch with the fewest, and the last whole batch of the epoch
"""

import argparse
import os
import pathlib
import random
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <penstock/sampler.hpp>
int main(int, char** a) {
  const auto number = [a](int i) { return std::strtoull(a[i], nullptr, 10); };
  const penstock::Sampler sampler({.samples = number(1), .batch_size = 1 << 16, .shuffle = true, .seed = 7,
                                   .block = number(2), .window = number(3)});
  std::vector<std::uint64_t> out;
  for (std::uint64_t batch = 0; batch < sampler.batches(); ++batch) {
    sampler.samples(number(4), batch, out);
    for (const std::uint64_t sample : out) std::printf("%llu\n", static_cast<unsigned long long>(sample));
  }
}
"""


class Ours:
    def __init__(self, folder):
        self.program = str(pathlib.Path(folder) / "order")
        source = pathlib.Path(folder) / "order.cpp"
        source.write_text(PROGRAM)
        compiler = os.environ.get("CXX", "c++")
        subprocess.run([compiler, "-std=c++20", "-O2", "-DPENSTOCK_HEADER_ONLY", f"-I{ROOT / 'include'}", str(source),
                        "-o", self.program], check=True)  # fmt: skip

    def order(self, samples, block, window, epoch):
        arguments = [str(number) for number in (samples, block, window, epoch)]
        out = subprocess.run([self.program, *arguments], check=True, capture_output=True, text=True).stdout
        return [int(line) for line in out.split()]


def shards_in_random_order(samples, shard, rng):
    shards = [range(begin, min(begin + shard, samples)) for begin in range(0, samples, shard)]
    rng.shuffle(shards)
    return shards


def py1s(samples, shard, rng):
    """Shards in random order, each shuffled in itself."""
    order = []
    for part in shards_in_random_order(samples, shard, rng):
        order += rng.sample(part, len(part))
    return order


def py2s(samples, shard, rng):
    """The same, where each shard is shuffled once for the run and once more for the epoch."""
    order = []
    for part in shards_in_random_order(samples, shard, rng):
        once = rng.sample(part, len(part))
        order += rng.sample(once, len(once))
    return order


def random_size(size, rng):
    return rng.randrange(int(0.75 * size), int(1.25 * size))


def py1br(samples, shard, size, rng):
    """Shards in random order; that list is shuffled in pieces of a random size whose first edge is random too."""
    order = [sample for part in shards_in_random_order(samples, shard, rng) for sample in part]
    begin, end = 0, random_size(size, rng) - rng.randrange(int(0.75 * size))
    while begin < samples:
        piece = order[begin : max(end, begin)]
        rng.shuffle(piece)
        order[begin : begin + len(piece)] = piece
        begin += len(piece)
        end = begin + random_size(size, rng)
    return order


def py1e(samples, shard, size, rng):
    """Shards in random order; each sample moves by a random distance, so that a shard spreads over `size` places or so."""
    moved, offset = [], 0
    for part in shards_in_random_order(samples, shard, rng):
        reach = max(0.0, (random_size(size, rng) - len(part)) / 2)
        low, high = max(-reach, -offset), min(reach, samples - offset - len(part))
        for i, sample in enumerate(rng.sample(part, len(part))):
            moved.append((offset + i + rng.uniform(low, high), sample))
        offset += len(part)
    return [sample for _, sample in sorted(moved)]


def quasi_random(samples, page, open_pages, rng):
    """So many pages are open; each sample is the next of a random one. A page that is used up makes room for another."""
    waiting = [rng.sample(part, len(part)) for part in shards_in_random_order(samples, page, rng)]
    pages, order = [], []
    while waiting or pages:
        while waiting and len(pages) < open_pages:
            pages.append(waiting.pop())
        i = rng.randrange(len(pages))
        order.append(pages[i].pop())
        if not pages[i]:
            pages[i] = pages[-1]
            pages.pop()
    return order


def at_hand(order, block):
    left, most, now = {}, 0, 0
    sizes = {}
    for sample in order:
        sizes[sample // block] = sizes.get(sample // block, 0) + 1
    for sample in order:
        key = sample // block
        if key not in left:
            left[key] = sizes[key]
            now += sizes[key]
            most = max(most, now)
        left[key] -= 1
        if left[key] == 0:
            now -= sizes[key]
    return most


def measure(order, block, options):
    count = options.samples
    assert sorted(order) == list(range(count)), "every sample once"
    labels = [sample * options.classes // count for sample in order]
    runs = 1 + sum(a != b for a, b in zip(labels, labels[1:]))
    batches = [len(set(labels[i : i + options.batch])) for i in range(0, count - options.batch + 1, options.batch)]
    return {"at hand": at_hand(order, block) if block > 1 else count,
            "displacement": statistics.fmean(abs(place - sample) for place, sample in enumerate(order)) / count,
            "label run": count / runs, "classes": statistics.fmean(batches), "fewest": min(batches), "last": batches[-1]}  # fmt: skip


def cases(options, ours):
    n, block, window = options.samples, options.block, options.window
    size = block * window

    def of_seed(function, *arguments):
        return lambda epoch: function(n, *arguments, random.Random(1000 + epoch))

    yield "full shuffle", 1, lambda epoch: ours.order(n, 0, 0, epoch)
    for w in (window // 4, window, 4 * window):
        yield f"ours, block {block}, window {w}", block, lambda epoch, w=w: ours.order(n, block, w, epoch)
    yield f"py1s, shards of {block}", block, of_seed(py1s, block)
    yield f"py2s, shards of {block}", block, of_seed(py2s, block)
    yield f"py1br, shards of {block}, block size {size}", block, of_seed(py1br, block, size)
    yield f"py1e, shards of {block}, block size {size}", block, of_seed(py1e, block, size)
    yield f"FFCV, pages of {block}, {window} open", block, of_seed(quasi_random, block, window)
    yield f"FFCV, pages of {block}, {2 * options.batch} open", block, of_seed(quasi_random, block, 2 * options.batch)
    yield "none", 1, lambda epoch: list(range(n))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=1281167)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--block", type=int, default=64)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    columns = ("at hand", "displacement", "label run", "classes", "fewest", "last")
    separator = " | " if options.markdown else "  "
    print(separator.join([f"{'order':42}", *(f"{name:>12}" for name in columns)]), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, block, order in cases(options, Ours(folder)):
            found = [measure(order(epoch), block, options) for epoch in range(options.epochs)]
            row = {column: statistics.fmean(f[column] for f in found) for column in columns}
            row |= {"at hand": max(f["at hand"] for f in found), "fewest": min(f["fewest"] for f in found),
                    "last": min(f["last"] for f in found)}  # fmt: skip
            texts = (f"{row[column]:12,.3f}" if column in ("displacement", "label run") else f"{row[column]:12,.0f}"
                     for column in columns)  # fmt: skip
            print(separator.join([f"{name:42}", *texts]), flush=True)


if __name__ == "__main__":
    main()
