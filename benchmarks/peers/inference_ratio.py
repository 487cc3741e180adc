#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
inference_ratio.py DIRECTORY

PyTorch's best and ours for each batch size: from DIRECTORY/MODEL-BATCH.json, of pytorch_inference.py, and
DIRECTORY/MODEL-BATCH/ladder.json, of examples/resnet/infer/ladder --only I7,I8 -- --free-loading; `scripts/gpu-check
pytorch-inference` makes both. Milliseconds of a batch that comes over the bus; PyTorch's with the batch on the device
from the start, behind it, is the less. x: PyTorch's best over our best, both over the bus. Exit status 1 when one of
them is missing, or ours is slower.
"""

import argparse
import json
import pathlib
import sys


def read(path):
    return json.loads(path.read_text()) if path.exists() else []


def peer_text(peers):
    """PyTorch's best: milliseconds over the bus, the columns that show it, and why a mode is missing."""
    measured = [peer for peer in peers if "failed" not in peer]
    missing = [f"{peer['mode']}: {peer['failed']}" for peer in peers if "failed" in peer]
    if not measured:
        return None, 2 * f"{'-':>10} {'':13}", missing or ["PyTorch was not measured"]
    bests = [min(measured, key=lambda peer: peer[figure]) for figure in ("bus_ms", "compute_ms")]
    columns = [f"{best[figure]:10.3f} {best['mode']:13}" for best, figure in zip(bests, ("bus_ms", "compute_ms"))]
    return bests[0]["bus_ms"], "".join(columns), missing


def rung_text(rung):
    if rung is None:
        return f"{'-':>10}{'':14}"
    return f"{rung['batch_ms']:10.3f} {rung['bound']:7}{100 * rung['bound_ms'] / rung['batch_ms']:4.0f} %"


def row(directory, model, batch):
    """A line of the table, and whether all is measured and ours not slower."""
    peer, text, missing = peer_text(read(directory / f"{model}-{batch}.json"))
    rungs = {rung["rung"]: rung for rung in read(directory / f"{model}-{batch}" / "ladder.json")}
    missing += [f"{number} was not measured" for number in ("I7", "I8") if number not in rungs]
    ratio = peer / min(rung["batch_ms"] for rung in rungs.values()) if peer and rungs else None
    verdict = "" if ratio is None else f"{ratio:8.2f}" + ("  SLOWER" if ratio < 1 else "")
    line = f"{model:10}{batch:6}{text}{rung_text(rungs.get('I7'))}{rung_text(rungs.get('I8'))}{verdict}"
    return "\n".join([line.rstrip(), *(f"{'':18}{why}" for why in missing)]), not missing and ratio >= 1


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("directory", type=pathlib.Path)
    directory = parser.parse_args().directory
    found = {path.stem for path in directory.glob("resnet*-*.json")}
    found |= {path.parent.name for path in directory.glob("resnet*-*/ladder.json")}
    if not found:
        sys.exit(f"{directory}: nothing was measured")
    heads = ["PyTorch", "on the device", "I7, its bound", "I8, its bound"]
    print(f"{'ms':10}{'batch':>6}{''.join(f'   {head:21}' for head in heads)}{'x':>8}")
    good = True
    for model, batch in sorted((model, int(batch)) for model, batch in (name.split("-") for name in found)):
        text, fine = row(directory, model, batch)
        good = good and fine
        print(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
