#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""queries_test.py QUERIES [DATABASE...]: the queries of docs/profiling/queries, which are asked of what nsys exports. On timelines that are
made up, with nsys's tables, each answer is what counting nanosecond by nanosecond finds. Of each DATABASE (or file of SQL that makes one),
which nsys has exported, they find the columns that they name.
"""

import pathlib
import random
import sqlite3
import statistics
import sys

queries = pathlib.Path(sys.argv[1])
recorded = [pathlib.Path(word) for word in sys.argv[2:]]

# What the queries name of nsys's tables, in the order of nsys 2023.4.4.
SCHEMA = """
create table StringIds (id integer primary key, value text);
create table ThreadNames (nameId integer, priority integer, globalTid integer);
create table NVTX_EVENTS (start integer, end integer, eventType integer, text text, globalTid integer, textId integer, uint64Value integer,
  int64Value integer, doubleValue real, uint32Value integer, int32Value integer, floatValue real);
create table CUPTI_ACTIVITY_KIND_RUNTIME (start integer, end integer, globalTid integer, correlationId integer, nameId integer);
create table CUPTI_ACTIVITY_KIND_KERNEL (start integer, end integer, streamId integer, correlationId integer);
create table CUPTI_ACTIVITY_KIND_MEMCPY (start integer, end integer, streamId integer, correlationId integer, bytes integer, copyKind integer,
  srcKind integer, dstKind integer);
create table CUPTI_ACTIVITY_KIND_MEMSET (start integer, end integer, streamId integer, correlationId integer, value integer, bytes integer);
create table ENUM_CUDA_MEMCPY_OPER (id integer primary key, name text, label text);
create table ENUM_CUDA_MEM_KIND (id integer primary key, name text, label text);
insert into ENUM_CUDA_MEMCPY_OPER values (1, 'HTOD', 'Host-to-Device'), (2, 'DTOH', 'Device-to-Host');
insert into ENUM_CUDA_MEM_KIND values (0, 'PAGEABLE', 'Pageable'), (1, 'PINNED', 'Pinned'), (2, 'DEVICE', 'Device');
"""
MAIN, WORKER = 0x1000001, 0x1000002
CALLS = ("cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cudaMemsetAsync_v3020", "cudaStreamSynchronize_v3020")


class Timeline:
    """Steps of a main thread, copies by a worker or by the main thread itself; what the device does begins when it likes."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.database = sqlite3.connect(":memory:")
        self.database.executescript(SCHEMA)
        self.names = {}
        self.ranges, self.calls, self.kernels, self.copies, self.fills = [], [], [], [], []
        for thread, name in ((MAIN, "trainer"), (WORKER, "penstock worker")):
            self.insert("ThreadNames", self.id(name), 0, thread)
        scale = 1000  # ns, so that what is rounded is not lost
        clock = {MAIN: 10 * scale, WORKER: 5 * scale}
        self.by_hand = self.random.random() < 0.3
        self.steps = self.random.randint(2, 5)
        for step in range(7, 7 + self.steps):
            self.batch(step, clock, MAIN if self.by_hand else WORKER, scale)
            begin = clock[MAIN]
            clock[MAIN] += scale
            for _ in range(self.random.randint(1, 4)):
                self.launch(MAIN, clock, scale, self.kernels, 0)
            if self.random.random() < 0.5:
                self.launch(MAIN, clock, scale, self.fills, 2)
            if self.random.random() < 0.5:
                self.call(MAIN, clock, 3, self.random.randint(1, 30) * scale)
            self.range("step", step, begin, clock[MAIN], MAIN)
            clock[MAIN] += scale

    def id(self, text):
        if text not in self.names:
            self.names[text] = len(self.names) + 1
            self.database.execute("insert into StringIds values (?, ?)", (self.names[text], text))
        return self.names[text]

    def insert(self, table, *row):
        self.database.execute(f"insert into {table} values ({','.join('?' * len(row))})", row)

    def range(self, name, payload, begin, end, thread):
        registered = self.random.random() < 0.5  # nsys has two places for names
        self.ranges.append((name, payload, begin, end, thread))
        self.insert("NVTX_EVENTS", begin, end, 59, None if registered else name, thread, self.id(name) if registered else None, payload,
                    None, None, None, None, None)  # fmt: skip

    def call(self, thread, clock, kind, length):
        begin = clock[thread]
        clock[thread] += length
        self.calls.append((begin, clock[thread], thread, len(self.calls) + 1, CALLS[kind]))
        self.insert("CUPTI_ACTIVITY_KIND_RUNTIME", begin, clock[thread], thread, len(self.calls), self.id(CALLS[kind]))
        clock[thread] += 1
        return len(self.calls)

    def launch(self, thread, clock, scale, into, kind):
        correlation = self.call(thread, clock, kind, self.random.randint(1, 3) * scale)
        begin = clock[thread] + self.random.randint(0, 20) * scale
        end = begin + self.random.randint(1, 15) * scale
        if into is self.kernels:
            into.append((begin, end, correlation))
            self.insert("CUPTI_ACTIVITY_KIND_KERNEL", begin, end, 7, correlation)
        elif into is self.fills:
            into.append((begin, end, correlation))
            self.insert("CUPTI_ACTIVITY_KIND_MEMSET", begin, end, 7, correlation, 0, 4)
        else:
            source, size = self.random.choice((0, 1)), self.random.randint(1, 9) * 1000
            into.append((begin, end, correlation, size, source))
            self.insert("CUPTI_ACTIVITY_KIND_MEMCPY", begin, end, 14, correlation, size, 1, source, 2)

    def batch(self, step, clock, thread, scale):
        begin = clock[thread]
        clock[thread] += scale
        for _ in range(self.random.randint(1, 2)):
            self.launch(thread, clock, scale, self.copies, 1)
        self.range("copy batch" if self.by_hand else "copy", step, begin, clock[thread], thread)
        clock[thread] += scale

    def ask(self, name):
        cursor = self.database.execute((queries / f"{name}.sql").read_text())
        columns = [column[0] for column in cursor.description]
        return [dict(zip(columns, row)) for row in cursor]

    def launched_in(self, its, work):
        return [one for one in work if any(call[3] == one[2] and call[2] == its[4] and its[2] <= call[0] and call[1] <= its[3] for call in self.calls)]

    def of(self, *names):
        return sorted((its for its in self.ranges if its[0] in names), key=lambda its: its[2])


def covered(intervals):
    return set().union(*(range(one[0], one[1]) for one in intervals)) if intervals else set()


def runs(points):
    """Lengths of what follows each other."""
    ordered, lengths = sorted(points), []
    for place, point in enumerate(ordered):
        if place and ordered[place - 1] == point - 1:
            lengths[-1] += 1
        else:
            lengths.append(1)
    return lengths


def alike(one, other):
    """Equal, but for what a last digit is rounded to."""
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, (int, float)):
        return abs(one - other) < max(0.0011, 0.11 if abs(one) > 5 else 0.011)
    return one == other


def require(found, expected, what):
    if not alike(found, expected):
        sys.exit(f"FAILED: {what}:\n  found    {found}\n  expected {expected}")


def ms(nanoseconds):
    return round(nanoseconds / 1e6, 3)


def check_idle(timeline):
    work = timeline.kernels + timeline.copies + timeline.fills
    busy = covered(work)
    begins = [min(one[0] for one in timeline.launched_in(its, work)) for its in timeline.of("step")]
    payloads = [payload for _, payload in sorted(zip(begins, (its[1] for its in timeline.of("step"))))]
    edges = sorted(begins) + [max(one[1] for one in work)]
    expected = []
    for payload, begin, end in zip(payloads, edges, edges[1:]):
        idle = set(range(begin, end)) - busy
        expected.append((payload, ms(end - begin), ms(len(idle)), round(100 * len(idle) / (end - begin), 1), ms(max(runs(idle), default=0))))
    require([tuple(row.values()) for row in timeline.ask("idle_in_steps")], expected, "idle_in_steps")


def check_copy_to_use(timeline):
    expected = []
    for its in timeline.of("copy", "copy batch"):
        copies = timeline.launched_in(its, timeline.copies)
        begin, end = min(one[0] for one in copies), max(one[1] for one in copies)
        uses = [kernel[0] for step in timeline.of("step") if step[1] == its[1] for kernel in timeline.launched_in(step, timeline.kernels)]
        uses = [start for start in uses if start >= end]
        if uses:
            expected.append((begin, (its[1], round(sum(one[3] for one in copies) / 1e6, 3), ms(end - begin), ms(min(uses) - end))))
    require([tuple(row.values()) for row in timeline.ask("copy_to_use")], [row for _, row in sorted(expected)], "copy_to_use")


def check_ranges(timeline):
    times = {}
    for name, payload, begin, end, _ in timeline.ranges:
        times.setdefault(name, []).append(end - begin)
    expected = []
    for name, payload, begin, end, _ in timeline.ranges:  # each payload once
        median = statistics.median(times[name])
        expected.append((-(end - begin - median), name, payload, 1, ms(end - begin), ms(end - begin), ms(median), ms(end - begin - median)))
    found = [tuple(row.values()) for row in timeline.ask("ranges_by_payload")]
    require(sorted(found), sorted(row[1:] for row in expected)[:20] if len(expected) <= 20 else sorted(found), "ranges_by_payload")
    require([row[-1] for row in found], [row[-1] for row in sorted(expected)][:20], "ranges_by_payload, in order")


def check_copies(timeline):
    kernels, expected = covered(timeline.kernels), []
    for source, label in ((0, "Pageable"), (1, "Pinned")):
        copies = [one for one in timeline.copies if one[4] == source]
        time = sum(one[1] - one[0] for one in copies)
        if copies:
            size, beside = sum(one[3] for one in copies), sum(len(kernels & set(range(one[0], one[1]))) for one in copies)
            expected.append((time, ("Host-to-Device", label, "Device", len(copies), round(size / 1e6, 3), ms(time), round(size / time, 2),
                                    round(100 * beside / time, 1))))  # fmt: skip
    found = [tuple(row.values()) for row in timeline.ask("copies_under_kernels")]
    require(sorted(found), sorted(row for _, row in expected), "copies_under_kernels")
    require([row[5] for row in found], [ms(time) for time in sorted((time for time, _ in expected), reverse=True)], "copies_under_kernels, in order")


def check_gaps(timeline):
    work = sorted(timeline.kernels + timeline.copies + timeline.fills)
    gaps, end = [], work[0][1]
    for one in work:
        if one[0] > end:
            gaps.append((one[0] - end, end, one[0]))
        end = max(end, one[1])
    expected = []
    for length, begin, end in sorted(gaps, reverse=True)[:10]:
        middle = (begin + end) // 2
        for thread, thread_name in ((MAIN, "trainer"), (WORKER, "penstock worker")):
            around = [its for its in timeline.ranges if its[4] == thread and its[2] <= middle <= its[3]]
            if around:
                its = max(around, key=lambda one: one[2])
                calls = [call[4] for call in timeline.calls if call[2] == thread and call[0] <= middle <= call[1]]
                expected.append((ms(begin), ms(length), thread_name, its[0], its[1], calls[0] if calls else None))
    if len(gaps) <= 10:
        found = [tuple(row.values()) for row in timeline.ask("longest_gaps")]
        require(sorted(found, key=str), sorted(expected, key=str), "longest_gaps")
    require([row["gap_ms"] for row in timeline.ask("longest_gaps")], [row[1] for row in expected], "longest_gaps, in order")


def check_calls(timeline):
    steps, times = timeline.of("step"), {}
    for its in steps:
        for begin, end, thread, _, name in timeline.calls:
            if thread == its[4] and its[2] <= begin and end <= its[3] and not name.startswith("cudaLaunchKernel"):
                times.setdefault(name, []).append(end - begin)
    all_time = sum(its[3] - its[2] for its in steps)
    expected = [(name, round(len(taken) / len(steps), 2), ms(sum(taken)), ms(max(taken)), round(100 * sum(taken) / all_time, 1))
                for name, taken in times.items()]  # fmt: skip
    require(sorted(tuple(row.values()) for row in timeline.ask("calls_in_steps")), sorted(expected), "calls_in_steps")


def check_recorded(path):
    """nsys's own tables: each query has an answer, and those about the device have rows if it did anything."""
    database = sqlite3.connect(":memory:" if path.suffix == ".sql" else path)
    if path.suffix == ".sql":
        database.executescript(path.read_text())
    (kernels,) = database.execute("select count(*) from CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    for query in sorted(queries.glob("*.sql")):
        rows = database.execute(query.read_text()).fetchall()
        print(f"{path.name}: {query.stem}: {len(rows)} rows")
        if kernels and not rows:
            sys.exit(f"FAILED: {query.stem} finds nothing in {path}")
    if not kernels and path.suffix == ".sql":
        sys.exit(f"FAILED: {path} has no kernel")


checks = {"idle_in_steps": check_idle, "copy_to_use": check_copy_to_use, "ranges_by_payload": check_ranges, "copies_under_kernels": check_copies,
          "longest_gaps": check_gaps, "calls_in_steps": check_calls}  # fmt: skip
require(sorted(query.stem for query in queries.glob("*.sql")), sorted(checks), "queries that are checked")
for seed in range(40):
    timeline = Timeline(seed)
    for check in checks.values():
        check(timeline)
for path in recorded:
    check_recorded(path)
print("all answers are right")
