#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
nsys_measure.py --nsys PROGRAM... --baseline "RUNG ARGUMENT..." --prefetcher "RUNG ARGUMENT..." --out DIRECTORY
                [--keep DIRECTORY] [--seconds N] [--emulated]
nsys_measure.py --nsys PROGRAM --read REPORT...

Tries Nsight Systems on this machine. Each nsys records the rung T12 as scripts/profile does (CUDA, NVTX and OS calls, from
cudaProfilerStart to cudaProfilerStop), the same for the whole run, and T1 with CUDA and NVTX only. If these recorded
nothing, it records NVTX only. From each report it takes the tables of `nsys export`, the ranges and names, and the output of
`nsys stats` and of the rules of `nsys analyze`. results.json has all of this, and nsys's messages; the output of each
command is beside it. An nsys without an importer leaves .qdstrm files. They are compressed into --keep, to be imported on
another machine and read by --read. At the end it says for what there was no time in N seconds. --emulated says that the
programs use no GPU. The exit status is 1 if no nsys recorded anything.
"""

import argparse
import json
import lzma
import os
import pathlib
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import time

PROFILE = pathlib.Path(__file__).resolve().parent.parent / "profile"
NO_SAMPLES = ["--sample=none", "--cpuctxsw=none"]
CAPTURE = ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
KEPT_BYTES = 15 << 20  # of a file
TELLING = re.compile(r"warn|error|fail|not supported|unable|cannot|could not|no report|skip|importer", re.IGNORECASE)


def run(command, limit, log=None, **environment):
    """Returns the exit status (None if it was ended at its limit), the seconds, and the output."""
    begin = time.monotonic()
    try:
        child = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                 stdin=subprocess.DEVNULL, env={**os.environ, **environment}, start_new_session=True)  # fmt: skip
    except OSError as error:
        return 127, 0, str(error)
    try:
        output = child.communicate(timeout=max(1, limit))[0]
        status = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, status = child.communicate()[0], None
    output = re.sub(r"[^\n]*\r(?!\n)", "", output)  # progress
    if log:
        log.write_text(f"{shlex.join(map(str, command))}\n\n{output}")
    return status, round(time.monotonic() - begin, 1), output


def telling(output):
    return [line.strip()[:300] for line in output.splitlines() if TELLING.search(line)][:12]


# ---- A report


def read_database(path):
    database = sqlite3.connect(path)
    names = [name for (name,) in database.execute("select name from sqlite_master where type = 'table' order by name")]
    tables = {name: database.execute(f'select count(*) from "{name}"').fetchone()[0] for name in names if not name.startswith("ENUM")}
    result = {"tables": {name: count for name, count in tables.items() if count}, "ranges": {}, "names": []}
    if "NVTX_EVENTS" in tables:
        result["ranges"] = {name: {"count": count, "ms": round((total or 0) / 1e6, 3)} for name, count, total in database.execute("""
            select coalesce(text, value) as name, count(*), sum(end - start) from NVTX_EVENTS
            left join StringIds on id = textId where end is not null group by name order by name""")}  # fmt: skip
    for query in ("select text from NVTX_EVENTS where end is null", "select value from StringIds"):
        if query.split(" from ")[1].split()[0] in tables:
            result["names"] += [name for (name,) in database.execute(query) if re.fullmatch(r"penstock [a-z]+", name or "")]
    result["names"] = sorted(set(result["names"]))
    return result


def sections(output):
    """Returns for each report of `nsys stats` and `nsys analyze` its first line, or that it is a table."""
    found = re.split(r"^Processing \[.*?([\w-]+)\.py.*$|^ \*\* .*\((\w[\w-]*).*\):.*$", output, flags=re.MULTILINE)
    told = {}
    for one, other, text in zip(found[1::3], found[2::3], found[3::3]):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if lines:
            told[one or other] = f"a table of {len(lines)} lines" if re.match(r"[-+|]|Time \(%\)|Duration", lines[0]) else lines[0][:200]
    return told


def read_report(nsys, report, folder, limit):
    """Exports the report to a database. Returns what is in it and what nsys says about it."""
    stem = report.stem
    database = folder / f"{stem}.sqlite"
    status, seconds, output = run([nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", database, report], limit)
    if status != 0 or not database.exists():
        return {"export": {"status": status, "said": output.strip()[-300:]}}
    result = {"export": {"status": status, "seconds": seconds}, **read_database(database)}
    for what in ("stats", "analyze"):
        status, seconds, output = run([nsys, what, "--force-export=true", report], limit, folder / f"{stem}.{what}.txt")
        result[what] = {"status": status, "seconds": seconds, "said": sections(output) or output.strip()[-300:]}
    database.unlink()
    return result


# ---- Recordings


class Measurement:
    def __init__(self, option):
        self.option, self.end = option, time.monotonic() + option.seconds
        self.found, self.left = [], []

    def limit(self, most):
        return min(most, self.end - time.monotonic())

    def tries(self, nsys):
        """Yields names and commands. A report is the file OUT or is in that folder."""
        baseline, prefetcher = (shlex.split(text) for text in (self.option.baseline, self.option.prefetcher))
        profile = [PROFILE, "--tool", "nsys", "--out", "OUT"]
        direct = [nsys, "profile", *NO_SAMPLES, "--force-overwrite=true"]
        yield "t12-profile", [*profile, "--", *prefetcher]
        yield "t12-whole", [*profile, "--whole", "--", *prefetcher]
        yield "t1-cuda-nvtx", [*direct, "--trace=cuda,nvtx", *([] if self.option.emulated else CAPTURE), "--output=OUT/report", *baseline]
        yield "t12-nvtx", [*direct, "--trace=nvtx", "--output=OUT/report", *prefetcher]

    def record(self, nsys, name, command):
        folder = self.option.out / f"{len(self.found)}-{name}"
        folder.mkdir(parents=True)
        command = [str(word).replace("OUT", str(folder)) for word in command]
        status, seconds, output = run(command, self.limit(45), folder / "output.txt", PATH=f"{nsys.parent}:{os.environ['PATH']}")
        found = sorted(path for path in folder.iterdir() if path.suffix in (".nsys-rep", ".qdstrm"))
        result = {"name": name, "command": shlex.join(command), "status": status, "seconds": seconds, "said": telling(output),
                  "files": {path.name: path.stat().st_size for path in found}}  # fmt: skip
        for path in found:
            if path.suffix == ".nsys-rep":
                result |= read_report(nsys, path, folder, self.limit(30))
            self.keep(path, f"{len(self.found)}-{name}{path.suffix}")
        return result

    def keep(self, path, name):
        """Keeps, compressed, the reports that have to be imported elsewhere, and the report that users would get. Few files can be
        carried away, so the others are deleted."""
        if self.option.keep and "whole" not in name and (path.suffix == ".qdstrm" or "profile" in name):
            packed = lzma.compress(path.read_bytes(), preset=0)
            if len(packed) <= KEPT_BYTES:
                (self.option.keep / f"{name}.xz").write_bytes(packed)
        path.unlink()  # The log has its size.

    def all_of(self, nsys):
        result = {"nsys": str(nsys), "version": run([nsys, "--version"], 20)[2].strip(), "tries": []}
        self.found.append(result)
        for name, command in self.tries(nsys):
            if name == "t12-nvtx" and any(one["files"] for one in result["tries"]):
                continue
            if self.limit(45) < 20 or any(one["status"] is None for one in result["tries"]):  # the next would hang too
                self.left.append(f"{nsys}: {name}")
                continue
            result["tries"].append(self.record(nsys, name, command))
            self.write()

    def write(self):
        gpu = run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], 20)[2].strip()
        (self.option.out / "results.json").write_text(json.dumps({"gpu": gpu, "found": self.found, "left": self.left}, indent=1))


def print_result(result):
    for what in ("export", "tables", "ranges", "names"):
        if what in result:
            print(f"    {what}: {json.dumps(result[what])}")
    for what in ("stats", "analyze"):
        if what not in result:
            continue
        said = result[what]["said"]
        said = said if isinstance(said, dict) else {"said": said}
        for name, text in said.items():
            if not text.startswith("SKIPPED"):
                print(f"    {what} {name}: {text}")
        print(f"    {what}, without data: {' '.join(name for name, text in said.items() if text.startswith('SKIPPED'))}")


def print_found(measurement):
    for found in measurement.found:
        print(f"{found['nsys']}: {found['version']}")
        for one in found["tries"]:
            print(f"  {one['name']}: exit status {one['status']}, {one['seconds']} s, {one['files'] or 'no report'}")
            for line in one["said"]:
                print(f"    said: {line}")
            print_result(one)
    for left in measurement.left:
        print(f"no time left for {left}")


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--nsys", nargs="+", type=lambda word: pathlib.Path(word).absolute(), required=True)
    parser.add_argument("--read", nargs="+", type=pathlib.Path)
    parser.add_argument("--baseline", default="")
    parser.add_argument("--prefetcher", default="")
    parser.add_argument("--out", type=lambda word: pathlib.Path(word).absolute())
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=140)
    parser.add_argument("--emulated", action="store_true")
    option = parser.parse_args()
    for report in option.read or []:
        print(report)
        print_result(read_report(option.nsys[0], report, report.absolute().parent, 60))
    if option.read:
        return 0
    measurement = Measurement(option)
    for nsys in option.nsys:
        measurement.all_of(nsys)
    measurement.write()
    print_found(measurement)
    return 0 if any(one["files"] for found in measurement.found for one in found["tries"]) else 1


if __name__ == "__main__":
    sys.exit(main())
