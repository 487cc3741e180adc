#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nsys_test.py CASE SCRIPTS PENSTOCK_TRACE TWO_RECORDERS PROGRAM: an emulated program under nsys, by scripts/profile, which prints the table of
the ranges; a case is one of the functions below. nsys and penstock-trace record the same run (two_recorders.cpp): of each range name, thread
by thread, they have the same ranges with the same payloads in the same order, and times within 5 %. Ends with 77, and
says why, where there is no nsys.
"""

import collections
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile

scripts, penstock_trace, two_recorders, program = (pathlib.Path(word).absolute() for word in sys.argv[2:6])
BUNDLED = scripts.parent / ".deps/nsight/usr/bin/nsys"
# Times differ by 5 % at most; those of ranges of some microseconds, which recording itself takes as long, by a
# microsecond a range.
TOLERANCE, RECORDING_NS = 0.05, 1000

Range = collections.namedtuple("Range", "name payload begin end")


def require(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def run(command, limit=120):
    """What it wrote, to both. It ends with 0 within so many seconds, or is ended with all that it started."""
    child = subprocess.Popen([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
    try:
        output = child.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGTERM)
        output = child.communicate(timeout=30)[0]
        require(False, f"{command} did not end\n{output}")
    require(child.returncode == 0, f"{command}: exit status {child.returncode}\n{output}")
    return output


# ---- Two recordings of one run


def record(*arguments):
    """The database that nsys makes of its report, and what penstock-trace wrote."""
    wrapper = pathlib.Path("two_recorders_emulated")
    wrapper.write_text(f"""#!/bin/sh
PENSTOCK_FIRST_RECORDER=$NVTX_INJECTION64_PATH exec '{penstock_trace}' --quiet --out trace -- \\
  env LD_PRELOAD="{two_recorders}:$LD_PRELOAD" '{program}' "$@"
""")
    wrapper.chmod(0o755)
    for old in ("trace", "reports"):
        shutil.rmtree(old, ignore_errors=True)
    output = run([scripts / "profile", "--tool", "nsys", "--out", "reports", "--", wrapper.absolute(), *arguments])
    reports = sorted(pathlib.Path("reports").iterdir())
    require([report.suffix for report in reports] == [".nsys-rep", ".sqlite"], f"not a report and its database, but {reports}\n{output}")
    for told in ("NVTX Range Summary", " PushPop  penstock:", f"Open {reports[0]} in ", f"ask {reports[1]}"):
        require(told in output, f"no '{told}': {output}")
    database = sqlite3.connect(reports[1])
    for query in (scripts.parent / "docs/profiling/queries").glob("*.sql"):
        rows = database.execute(query.read_text()).fetchall()  # All tables that it names are there.
        require(bool(rows) == (query.stem == "ranges_by_payload"), f"{query.stem}: {rows}")
    return database, json.loads(pathlib.Path("trace/trace.json").read_text())["traceEvents"]


def thread_of(global_id):
    return global_id & 0xFFFFFF


def nsys_ranges(database):
    """By thread, in the order of their begins. Each was ended by the program: what is open when it ends, nsys ends with
    the recording."""
    (last,) = database.execute("select max(duration) from ANALYSIS_DETAILS").fetchone()
    rows = database.execute("""
        select kinds.name, coalesce(events.text, strings.value), uint64Value, start, end, globalTid
        from NVTX_EVENTS as events join ENUM_NSYS_EVENT_TYPE as kinds on kinds.id = eventType
        left join StringIds as strings on strings.id = textId
        where kinds.name like '%Range' order by start, -end""")
    threads = collections.defaultdict(list)
    for kind, name, payload, begin, end, thread in rows:
        require(kind == "NvtxPushPopRange" and end is not None and end < last, f"{name} {payload} has no end: {kind}, {end}")
        threads[thread_of(thread)].append(Range(name, payload, begin, end))
    return threads


def nsys_thread_names(database):
    names = collections.defaultdict(set)
    for thread, name in database.execute("select globalTid, value from ThreadNames join StringIds on id = nameId"):
        names[thread_of(thread)].add(name)
    return names


def trace_ranges(events):
    threads = collections.defaultdict(list)
    for event in events:
        if event.get("cat") == "range":
            begin, end = (round(1000 * time) for time in (event["ts"], event["ts"] + event["dur"]))
            threads[event["tid"]].append(Range(event["name"], event["args"]["payload"], begin, end))
    return {thread: sorted(ranges, key=lambda its: (its.begin, -its.end)) for thread, ranges in threads.items()}


def trace_names(events):
    return {event["args"]["name"] for event in events if event["name"] == "thread_name"}


# ---- What they have to say


def check_agreement(ours, theirs):
    """Returns what differs in time, of each name. Of several ranges with a name, the one that differs most is left out:
    its thread may have waited for its core between the two recorders."""
    require(ours.keys() == theirs.keys(), f"ranges of threads {sorted(theirs)}, not of {sorted(ours)}")
    times = collections.defaultdict(list)
    for thread, ranges in ours.items():
        same = [its[:2] for its in ranges] == [its[:2] for its in theirs[thread]]
        require(same, f"thread {thread}: {theirs[thread]}\nare not {ranges}")
        for one, other in zip(ranges, theirs[thread]):
            times[one.name].append((one.end - one.begin, other.end - other.begin))
    problems = []
    for name, pairs in sorted(times.items()):
        pairs.sort(key=lambda pair: abs(pair[1] - pair[0]))
        our_time, their_time = map(sum, zip(*pairs[: max(1, len(pairs) - 1)]))
        print(f"{name:20} {len(pairs):5} ranges  {our_time / 1e6:9.3f} ms  nsys {their_time / our_time - 1:+8.2%}")
        if abs(their_time - our_time) > max(TOLERANCE * our_time, RECORDING_NS * len(pairs)):
            problems.append(f"{name}: {their_time} ns by nsys, {our_time} ns by penstock-trace")
    return problems


def check_nesting(ranges):
    """Of a thread: each ends before the one around it."""
    around = []
    for its in ranges:
        while around and around[-1].end <= its.begin:
            around.pop()
        require(not around or its.end <= around[-1].end, f"{its} is not within {around[-1:]}")
        around.append(its)


def agreeing_run(*arguments):
    """A recording in which both agree, of three at most where the machine is busy: {name: ranges} and {name: threads} of
    nsys, its names of threads, and penstock-trace's names."""
    for _ in range(3):
        database, events = record(*arguments)
        theirs = nsys_ranges(database)
        problems = check_agreement(trace_ranges(events), theirs)
        if not problems:
            break
        print("\n".join(problems))
    require(not problems, "times differ three times over")
    named, threads = collections.defaultdict(list), collections.defaultdict(set)
    for thread, ranges in theirs.items():
        check_nesting(ranges)
        for its in ranges:
            named[its.name].append(its)
            threads[its.name].add(thread)
    return named, threads, nsys_thread_names(database), trace_names(events)


def check_payloads(named, **expected):
    for name, payloads in expected.items():
        name = {"warm_up": "warm-up"}.get(name, name.replace("_", " "))
        require(sorted(its.payload for its in named[name]) == sorted(payloads), f"{name}: {named[name]}, not {payloads}")


def check_within(named, outer, *names):
    for name in names:
        for its in named[name]:
            around = [one for one in named[outer] if one.begin <= its.begin and its.end <= one.end]
            require(len(around) == 1, f"{its} is in {len(around)} of the ranges {outer}")


def check_names(threads, names, **expected):
    for name, thread_name in expected.items():
        for thread in threads[name]:
            require(thread_name in names[thread], f"a thread with {name} has the names {names[thread]}, not {thread_name}")


# ---- Cases

WARMUP, STEPS, BATCH, BATCHES = 1, 34, 8, 10  # an epoch has 10 batches: the fourth is begun
TRAINING = ["--model", "resnet8", "--image-size", 16, "--cache", ".", "--records", BATCH * BATCHES, "--batch", BATCH,
            "--warmup", WARMUP, "--steps", STEPS]  # fmt: skip


def epochs(count):
    """The names of ranges: an epoch has one of its own, which nsys's tables keep apart."""
    return [f"epoch {number}" for number in range(count)]


def one_of_each_epoch(count):
    return {name.replace(" ", "_"): [number] for number, name in enumerate(epochs(count))}


def check_training(named, *more):
    steps = range(WARMUP + STEPS)
    check_payloads(named, entire_training=[len(steps)], warm_up=[WARMUP], measured_steps=[STEPS], **one_of_each_epoch(4), step=steps, get_batch=steps,
                   **{name: [BATCH] * len(steps) for name in ("forward", "loss", "backward", "optimizer")})  # fmt: skip
    check_within(named, "entire training", "warm-up", "measured steps")
    check_within(named, "measured steps", *epochs(4))
    parts = {"part": sum((named[epoch] for epoch in epochs(4)), named["warm-up"]), "step": named["step"]}
    check_within(parts, "part", "step")
    check_within(named, "step", "get batch", "forward", "loss", "backward", "optimizer", *more)


def baseline():
    named, threads, _, _ = agreeing_run(*TRAINING)
    check_training(named, "copy batch", "read loss")
    check_payloads(named, copy_batch=range(WARMUP + STEPS))
    require(len(set.union(*threads.values())) == 1, f"more than one thread has ranges: {threads}")


def prefetcher():
    named, threads, names, traced = agreeing_run(*TRAINING, "--workers", 2)
    check_training(named)
    check_payloads(named, next=range(WARMUP + STEPS), readback=range(WARMUP + STEPS))
    check_within(named, "get batch", "next")
    for name in ("fill", "copy"):  # some batches are made that no step takes
        payloads = [its.payload for its in named[name]]
        require(set(range(BATCHES)) == set(payloads) and len(payloads) >= WARMUP + STEPS, f"{name} of batches {payloads}")
    check_names(threads, names, fill="penstock worker", readback="penstock readback")
    require({"penstock worker", "penstock copies", "penstock readback"} <= traced, f"penstock-trace has the names {traced}")


def train():
    named, threads, names, _ = agreeing_run(
        "--model", "resnet8", "--image-size", 16, "--cache", ".", "--records", 80, "--test-records", 8, "--batch", 8, "--epochs", 2,
        "--workers", 2)  # fmt: skip
    check_payloads(named, entire_training=[2], **one_of_each_epoch(2), step=range(20), get_batch=range(20))
    check_within(named, "entire training", *epochs(2))
    check_within({"epoch": named["epoch 0"] + named["epoch 1"], "step": named["step"]}, "epoch", "step")
    check_within(named, "step", "get batch")
    check_names(threads, names, fill="penstock worker", readback="penstock readback")


def quickstart():
    batches = 32  # of 500 samples, 16 each
    named, threads, names, traced = agreeing_run("--cache", ".", "--records", 500, "--batch", 16, "--workers", 2)
    check_payloads(named, next=range(batches + 1), fill=range(batches), copy=range(batches), compute=range(batches))
    check_names(threads, names, fill="penstock worker")
    require({"penstock worker", "penstock copies"} <= traced, f"penstock-trace has the names {traced}")


def gpu_check():
    """scripts/gpu-check nsys and reports, tried with the emulated programs that are in the build folder of PROGRAM."""
    os.environ["PENSTOCK_GPU_CHECK_RESULTS"] = str(pathlib.Path("results").absolute())
    output = run([scripts / "gpu-check", "--dry-run", program.parents[2], "nsys", "reports=T1,I5a,T13,quickstart"], limit=400)
    results = json.loads(pathlib.Path("results/nsys/results.json").read_text())
    (own,) = (found for found in results["found"] if os.path.samefile(found["nsys"], nsys))
    tries = {one["name"]: one for one in own["tries"]}
    require(tries.keys() == {"t12-profile", "t12-whole", "t1-cuda-nvtx"}, output)
    for one in tries.values():
        require(one["status"] == 0 and [name[-9:] for name in one["files"]] == [".nsys-rep"], output)
        require(one["ranges"]["step"]["count"] == 8, output)  # 5 to warm up
        require(isinstance(one["analyze"]["said"], dict) and one["analyze"]["said"], output)
    require("penstock worker" in tries["t12-profile"]["names"], output)
    reports = sorted(path.name for path in pathlib.Path("results/reports_T1_I5a_T13_quickstart").glob("*.nsys-rep"))
    require(reports == ["I5a.nsys-rep", "T1.nsys-rep", "T13.rank0.nsys-rep", "T13.rank1.nsys-rep", "quickstart.nsys-rep"], output)
    for words, why in ((["none.nsys-rep", "picture.png"], "there is no report"), ([__file__, "no/picture.png"], "there is no folder for no/picture.png")):
        done = subprocess.run([sys.executable, scripts / "nsys_picture.py", *words], text=True, capture_output=True)
        require(done.returncode == 1 and why in done.stderr, done)


if __name__ == "__main__":
    nsys = shutil.which("nsys") or BUNDLED
    if not pathlib.Path(nsys).exists():
        print("skipped: there is no nsys, neither on the PATH nor in .deps/nsight (scripts/setup nsys brings it)")
        sys.exit(77)
    cases = {case.__name__: case for case in (baseline, prefetcher, train, quickstart, gpu_check)}
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        cases[sys.argv[1]]()
        os.chdir("/")
