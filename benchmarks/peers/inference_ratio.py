#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
inference_ratio.py DIRECTORY

PyTorch's best and ours for each batch size: from DIRECTORY/MODEL-BATCH.json, of pytorch_inference.py, and
DIRECTORY/MODEL-BATCH/ladder.json, of examples/resnet/infer/ladder --only I7,I8,I8u -- --free-loading; `scripts/gpu-check
pytorch-inference` makes both. Milliseconds of a batch in three ways, and PyTorch's over ours:

  floats   it comes over the bus in float32: the better one of I7 and I8
  bytes    over the bus in bytes: whole images for PyTorch, CIFAR-10's records for I8, which resizes them, too
  device   it lies on the device: what is left without the bus

Behind each of ours, what bounds it. Exit status 1 when one of them is missing, or ours is slower.
"""

import argparse
import json
import pathlib
import sys


def read(path):
    return json.loads(path.read_text()) if path.exists() else []


def best_of(rungs, what):
    return min((rung for rung in rungs if rung), key=lambda rung: rung[what], default=None)


def ours(rungs):
    """For each way: milliseconds, and what bounds them."""
    best, bytes_ = best_of((rungs.get("I7"), rungs.get("I8")), "batch_ms"), rungs.get("I8u")
    computed = best_of((rungs.get("I7"), rungs.get("I8")), "compute_ms")
    return {"floats": best and (best["batch_ms"], f"{best['rung']}, {best['bound']}"),
            "bytes": bytes_ and (bytes_["batch_ms"], f"I8, {bytes_['bound']}"),
            "device": computed and (computed["compute_ms"], f"{computed['rung']}")}  # fmt: skip


def theirs(peers):
    """For each way: milliseconds, and the mode."""
    measured = [peer for peer in peers if "failed" not in peer]
    figures = {"floats": "bus_ms", "bytes": "bytes_ms", "device": "compute_ms"}
    bests = {way: best_of(measured, figure) for way, figure in figures.items()}
    return {way: best and (best[figures[way]], best["mode"]) for way, best in bests.items()}


def rows(directory, model, batch):
    """A line for each way, and whether all is measured and ours not slower."""
    peers = read(directory / f"{model}-{batch}.json")
    rungs = {rung["rung"]: rung for rung in read(directory / f"{model}-{batch}" / "ladder.json")}
    lines, good = [], True
    pytorch, penstock = theirs(peers), ours(rungs)
    for way in ("floats", "bytes", "device"):
        columns = [f"{one[0]:10.3f}  {one[1]:14}" if one else f"{'-':>10}  {'not measured':14}" for one in (pytorch[way], penstock[way])]
        ratio = pytorch[way][0] / penstock[way][0] if pytorch[way] and penstock[way] else 0
        good = good and ratio >= 1
        verdict = f"{ratio:8.2f}" + ("  SLOWER" if ratio < 1 else "") if ratio else ""
        lines.append(f"{model:10}{batch:6}  {way:8}{''.join(columns)}{verdict}".rstrip())
    return lines + [f"{'':18}{peer['mode']}: {peer['failed']}" for peer in peers if "failed" in peer], good


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("directory", type=pathlib.Path)
    directory = parser.parse_args().directory
    found = {path.stem for path in directory.glob("resnet*-*.json")}
    found |= {path.parent.name for path in directory.glob("resnet*-*/ladder.json")}
    if not found:
        sys.exit(f"{directory}: nothing was measured")
    print(f"{'ms':10}{'batch':>6}  {'':8}{'PyTorch':>10}{'':16}{'ours':>10}{'':16}{'x':>8}")
    good = True
    for model, batch in sorted((model, int(batch)) for model, batch in (name.split("-") for name in found)):
        lines, fine = rows(directory, model, batch)
        good = good and fine
        print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
