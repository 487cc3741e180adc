#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
profiler_agreement.py --trace PENSTOCK-TRACE [--loop memory] [--rounds 5] [--steps N] [--tolerance 0.02]
                      [--limit SECONDS] [--json FILE]

Does penstock-trace measure what PyTorch's profiler measures? The same loop runs under PyTorch's profiler, under
penstock-trace, and under none, by turns, --rounds times each, every run a process of its own: both ask CUPTI, which has
one subscriber at a time, and two runs of one loop never take the same time. Each step is in the range "step", and
synchronises at its end.

  memory    a copy to the device, a convolution, a product of matrices, 100 additions as fast as memory, a fill, a copy
            back
  products  30 products of 4096 x 4096 matrices in float16 in place of the additions: as fast as power and clock allow
  short     neither: steps of 1.3 ms on an H200, of which two thirds are copies

Shown for each quantity: the median of each tool, and its spread, (largest - smallest) / median. Those that the tools
record: the device's time in kernels, copies and fills, the host's in the ranges. Those that the loop measures itself,
in all three: the host's clock (perf_counter) around each step, and the device's between events at its ends: the run
that is not recorded says which tool holds the loop up. Counts of kernels, copies, fills and ranges must be the same in
every run, and what the tools record must differ by no more than the tolerance, or than 50 ns for each event (2 % of a
fill that takes 0.8 us are 16 ns); else the exit status is 1. Where they differ by less than runs of one tool do, that is
said. No round is begun that would not end within --limit seconds; FILE, with every run in it, is written after each.
Needs a GPU and Python's torch.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TOOLS = ("pytorch", "penstock", "none")
LOOPS = {"memory": 200, "products": 200, "short": 1000}  # and their steps
RECORDED = ("kernels", "copies", "fills", "ranges")
OWN = ("host's clock", "events")
EVENT_TOLERANCE = 0.05  # us
# As PyTorch's trace calls them, and as penstock's does.
KINDS = {"kernel": "kernels", "gpu_memcpy": "copies", "copy": "copies", "gpu_memset": "fills", "fill": "fills"}


# ---- One run, in a process of its own --------------------------------------------------------------


def make_step(torch, loop):
    """The loop's body, warmed up; where an event is given, it is recorded behind the step's work."""
    torch.backends.cuda.matmul.allow_tf32 = False
    host = torch.empty(64, 64, 56, 56, dtype=torch.float16).normal_().pin_memory()
    back = torch.empty(64, 64, 56, 56, dtype=torch.float16).pin_memory()
    device, filled = torch.empty_like(host, device="cuda"), torch.empty(1 << 24, device="cuda")
    convolution = torch.nn.Conv2d(64, 64, 3, padding=1, bias=False).half().cuda()
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)

    def step(end=None):
        with torch.no_grad():
            device.copy_(host, non_blocking=True)
            result = convolution(device)
            torch.mm(matrix, matrix)
            for _ in range(100 if loop == "memory" else 0):
                filled.add_(1)
            for _ in range(29 if loop == "products" else 0):
                torch.mm(matrix, matrix)
            filled.zero_()
            back.copy_(result, non_blocking=True)
        if end:
            end.record()
        torch.cuda.synchronize()

    for _ in range(20):
        step()
    return step


def run_steps(torch, step, count, step_range):
    """Microseconds of all steps, by the host's clock and by events."""
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for event in (event for pair in pairs for event in pair):
        event.record()  # That is when it is created.
    torch.cuda.synchronize()
    host = 0.0
    for begin, end in pairs:
        started = time.perf_counter()
        with step_range():
            begin.record()
            step(end)
        host += time.perf_counter() - started
    return {"host's clock": 1e6 * host, "events": sum(1000 * begin.elapsed_time(end) for begin, end in pairs)}


def run_child(option):
    """Under the tool that the parent chose; what the loop measures goes to a file."""
    import contextlib

    import torch

    body = make_step(torch, option.loop)

    @contextlib.contextmanager
    def nvtx_range():
        torch.cuda.nvtx.range_push("step")
        yield
        torch.cuda.nvtx.range_pop()

    if option.child == "pytorch":
        from torch.profiler import ProfilerActivity, profile, record_function

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            own = run_steps(torch, body, option.steps, lambda: record_function("step"))
        profiler.export_chrome_trace(str(option.into / "trace.json"))
    else:
        torch.cuda.profiler.start()
        own = run_steps(torch, body, option.steps, nvtx_range)
        torch.cuda.profiler.stop()
    (option.into / "own.json").write_text(json.dumps(own))


# ---- All runs --------------------------------------------------------------------------------------


def recorded(path):
    """Of a trace.json: how many there are of each kind, and their microseconds."""
    totals = {kind: [0, 0.0] for kind in RECORDED}
    for event in json.loads(path.read_text())["traceEvents"]:
        category = event.get("cat", "")
        kind = KINDS.get(category)
        if event.get("name") == "step" and (category == "user_annotation" or category.startswith("range")):
            kind = "ranges"
        if kind and event.get("ph") == "X":
            totals[kind][0] += 1
            totals[kind][1] += event["dur"]
    return totals


def measure(tool, option):
    """A run's counts, and its microseconds a step."""
    with tempfile.TemporaryDirectory() as scratch:
        into = pathlib.Path(scratch)
        command = [sys.executable, __file__, "--loop", option.loop, "--steps", option.steps, "--child", tool,
                   "--into", into]  # fmt: skip
        if tool == "penstock":
            command = [option.trace, "--capture-range", "--quiet", "--out", into, "--", *command]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
        own = json.loads((into / "own.json").read_text())
        totals = recorded(into / "trace.json") if tool != "none" else {}
    return {"tool": tool, "counts": {kind: count for kind, (count, _) in totals.items()},
            **{kind: time / option.steps for kind, (_, time) in totals.items()},
            **{what: time / option.steps for what, time in own.items()}}  # fmt: skip


def measure_all(option):
    runs, begin = [], time.monotonic()
    for number in range(option.rounds):
        spent = time.monotonic() - begin
        if number > 0 and spent * (number + 1) / number > option.limit:
            print(f"{number} of {option.rounds} rounds: no more was done in {option.limit:.0f} s (--limit)")
            break
        for tool in TOOLS:
            try:
                runs.append(measure(tool, option))
            except subprocess.CalledProcessError as error:
                print(f"the run with {tool} failed: exit status {error.returncode}", flush=True)
                return runs
            if option.json:
                written = {"loop": option.loop, "steps": option.steps, "runs": runs}
                option.json.write_text(json.dumps(written, indent=1) + "\n")
    return runs


# ---- The table -------------------------------------------------------------------------------------


def middle_and_spread(runs, tool, what):
    times = [run[what] for run in runs if run["tool"] == tool and what in run]
    if not times:
        return None
    middle = statistics.median(times)
    return middle, (max(times) - min(times)) / max(middle, 1e-9)


def cell(figures):
    return f"{'-':>21}" if figures is None else f"{figures[0]:11.1f} ({100 * figures[1]:5.2f} %)"


def judge(runs, kind, option):
    """The difference of the medians, and whether the tools agree."""
    (theirs, one), (ours, other) = (middle_and_spread(runs, tool, kind) for tool in ("pytorch", "penstock"))
    difference = ours / max(theirs, 1e-9) - 1
    counts = sorted({run["counts"][kind] for run in runs if run["counts"]})
    same = len(counts) == 1 and counts[0] > 0
    an_event = abs(ours - theirs) * option.steps / max(counts[-1], 1)
    good = same and (abs(difference) <= option.tolerance or an_event <= EVENT_TOLERANCE)
    differ = "DIFFER, as runs of one tool do" if abs(difference) <= max(one, other) else "DIFFER"
    verdict = "agree" if good else differ if same else "OTHER COUNTS"
    return f"{100 * difference:+10.2f} %  {'/'.join(map(str, counts))} {verdict}", good


def report(runs, option):
    if {run["tool"] for run in runs} != set(TOOLS):
        print("there is no run of each tool")
        return False
    heads = "".join(f"{head:>21}" for head in ("PyTorch", "penstock", "not recorded"))
    print(f"{option.loop}, {option.steps} steps: us a step, median (spread) of {len(runs) // len(TOOLS)} runs\n"
          f"{'':13}{heads}{'difference':>12}  counts in a run")  # fmt: skip
    agree = True
    for what in (*RECORDED, *OWN):
        cells = {tool: middle_and_spread(runs, tool, what) for tool in TOOLS}
        verdict, good = judge(runs, what, option) if what in RECORDED else ("", True)
        if what in OWN:
            added = [f"{100 * (cells[tool][0] / cells['none'][0] - 1):+.2f} %" for tool in TOOLS[:2]]
            verdict = f"  recording adds {added[0]} / {added[1]}"
        agree = agree and good
        print(f"{what:13}{''.join(cell(cells[tool]) for tool in TOOLS)}{verdict}")
    return agree


def options():
    parser = argparse.ArgumentParser(usage=__doc__.strip().replace("%", "%%"))
    parser.add_argument("--trace", type=pathlib.Path, help="the program penstock-trace")
    parser.add_argument("--loop", choices=list(LOOPS), default="memory")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--tolerance", type=float, default=0.02)
    parser.add_argument("--limit", type=float, default=3600, metavar="SECONDS")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--child", choices=TOOLS, help=argparse.SUPPRESS)
    parser.add_argument("--into", type=pathlib.Path, help=argparse.SUPPRESS)
    option = parser.parse_args()
    option.steps = option.steps or LOOPS[option.loop]
    if not option.child and not option.trace:
        parser.error("--trace: the program penstock-trace")
    return option


def main():
    option = options()
    if option.child:
        run_child(option)
        return 0
    return 0 if report(measure_all(option), option) else 1


if __name__ == "__main__":
    sys.exit(main())
