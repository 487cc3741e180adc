#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
profiler_agreement.py --trace PENSTOCK-TRACE [--steps 200] [--tolerance 0.02] [--json FILE]

Does penstock-trace measure what PyTorch's profiler measures? The same loop (copy to the device, a convolution, a product
of matrices, a fill, copy back; in the range "step") runs in two processes, one under each; both ask CUPTI, which has one
subscriber at a time. Counts of kernels, copies and fills must be equal, and the device's time in each of them and the
host's in the range must agree within the tolerance: the median of three runs. Needs a GPU and Python's torch. Exit status 0
when they agree.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

RUNS = 3
KINDS = {"kernel": "kernels", "gpu_memcpy": "copies", "gpu_memset": "fills"}  # as PyTorch's trace calls them


def make_step(torch):
    """The loop's body, warmed up."""
    torch.backends.cuda.matmul.allow_tf32 = False
    host = torch.empty(64, 64, 56, 56, dtype=torch.float16).normal_().pin_memory()
    back = torch.empty(64, 64, 56, 56, dtype=torch.float16).pin_memory()
    device, filled = torch.empty_like(host, device="cuda"), torch.empty(1 << 24, device="cuda")
    convolution = torch.nn.Conv2d(64, 64, 3, padding=1, bias=False).half().cuda()
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)

    def step():
        with torch.no_grad():
            device.copy_(host, non_blocking=True)
            result = convolution(device)
            torch.mm(matrix, matrix)
            for _ in range(100):  # as fast as memory, whatever the clock
                filled.add_(1)
            filled.zero_()
            back.copy_(result, non_blocking=True)
        torch.cuda.synchronize()

    for _ in range(20):
        step()
    return step


def run_traced(steps):
    """In a process that penstock-trace started."""
    import torch

    step = make_step(torch)
    torch.cuda.profiler.start()
    for _ in range(steps):
        torch.cuda.nvtx.range_push("step")
        step()
        torch.cuda.nvtx.range_pop()
    torch.cuda.profiler.stop()


def run_profiled(steps, path):
    """Under PyTorch's profiler, into a file of Chrome's format."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    step = make_step(torch)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            with record_function("step"):
                step()
    profiler.export_chrome_trace(path)


def add(totals, kind, microseconds):
    count, time = totals.get(kind, (0, 0.0))
    totals[kind] = (count + 1, time + microseconds)


def totals_of_pytorch(path):
    totals = {}
    for event in json.loads(pathlib.Path(path).read_text())["traceEvents"]:
        if event.get("ph") != "X":
            continue
        if event.get("cat") in KINDS:
            add(totals, KINDS[event["cat"]], event["dur"])
        elif event.get("cat") == "user_annotation" and event["name"] == "step":
            add(totals, "steps", event["dur"])
    return totals


def totals_of_penstock(path):
    """Of trace.json: kinds are its categories."""
    names = {"kernel": "kernels", "copy": "copies", "fill": "fills"}
    totals = {}
    for event in json.loads(pathlib.Path(path).read_text())["traceEvents"]:
        if event.get("ph") != "X":
            continue
        if event.get("cat") in names:
            add(totals, names[event["cat"]], event["dur"])
        elif event.get("cat", "").startswith("range") and event["name"] == "step":
            add(totals, "steps", event["dur"])
    return totals


def measure(option, directory, number):
    me = [sys.executable, __file__, "--steps", str(option.steps)]
    theirs, ours = directory / f"pytorch{number}.json", directory / f"penstock{number}"
    subprocess.run([*me, "--child", str(theirs)], check=True)
    subprocess.run([str(option.trace), "--capture-range", "--out", str(ours), "--", *me, "--child", "traced"], check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    return totals_of_pytorch(theirs), totals_of_penstock(ours / "trace.json")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("--trace", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--tolerance", type=float, default=0.02)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--child")
    option = parser.parse_args()
    if option.child:
        run_traced(option.steps) if option.child == "traced" else run_profiled(option.steps, option.child)
        return 0
    if not option.trace:
        parser.error("--trace: the program penstock-trace")
    with tempfile.TemporaryDirectory() as directory:
        runs = [measure(option, pathlib.Path(directory), number) for number in range(RUNS)]
    agree, rows = True, []
    for kind in ("kernels", "copies", "fills", "steps"):
        theirs, ours = ([run[side].get(kind, (0, 0.0)) for run in runs] for side in (0, 1))
        counts = {count for count, _ in theirs + ours}
        a, b = statistics.median(time for _, time in theirs), statistics.median(time for _, time in ours)
        difference = abs(a - b) / max(a, 1e-9)
        good = len(counts) == 1 and 0 not in counts and difference <= option.tolerance
        agree = agree and good
        rows.append({"what": kind, "counts": sorted(counts), "pytorch_us": a, "penstock_us": b, "difference": difference})
        print(f"{kind:8} {'/'.join(map(str, sorted(counts))):>12}  PyTorch {a:12.1f} us  penstock {b:12.1f} us"
              f"  {100 * difference:5.2f} %  {'agree' if good else 'DIFFER'}")  # fmt: skip
    if option.json:
        option.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
