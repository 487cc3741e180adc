#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
trace_table.py DIRECTORY

Prints a line for each report of penstock-trace in a folder of DIRECTORY. The line has the time divided by the number of
steps, a step's median on the host (which may be far ahead of the device), the kernels and copies of a step, the fraction of
time in which the device was idle, the fraction of the copies' time that is under kernels, and the findings with their share
of the time. The exit status is 1 if a folder has no report or events were dropped.
"""

import argparse
import json
import pathlib
import re
import sys


def order(path):
    """A key that sorts T2 before T10, and I5a before I5b."""
    letter, number, rest = re.fullmatch(r"(\D*)(\d*)(.*)", path.name).groups()
    return letter != "T", letter, int(number or 0), rest


def count(report, what):
    return sum(row["count"] for row in report[what])


def row(directory):
    """Returns a line of the table, and whether it has all events."""
    report = json.loads((directory / "report.json").read_text())
    findings = json.loads((directory / "findings.json").read_text())
    each = (report["end"] - report["begin"]) / max(report["steps"], 1)
    kernels, copies = (count(report, what) / max(report["steps"], 1) for what in ("kernels", "copies"))
    copy, overlap = (sum(device[what] for device in report["devices"]) for what in ("copy", "overlap"))
    under = f"{100 * overlap / copy:.1f}" if copy else "-"
    idle = max((device["idle"] for device in report["devices"]), default=0)
    told = [f"{finding['rule']} {100 * finding['share']:.1f} %" for finding in findings] or ["none"]
    if report["dropped"]:
        told.append(f"{report['dropped']} events were DROPPED")
    line = (f"{directory.name:6}{report['steps']:6}{each / 1e6:10.3f}{report['step_median'] / 1e6:10.3f}{kernels:9.1f}"
            f"{copies:8.1f}{100 * idle:8.1f}{under:>9}  {', '.join(told)}")  # fmt: skip
    return line, not report["dropped"]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.strip())
    parser.add_argument("directory", type=pathlib.Path)
    folders = sorted((path for path in parser.parse_args().directory.iterdir() if path.is_dir()), key=order)
    if not folders:
        sys.exit("nothing was traced")
    print(f"{'rung':6}{'steps':>6}{'ms each':>10}{'on host':>10}{'kernels':>9}{'copies':>8}{'idle %':>8}{'under %':>9}"
          "  findings, their share of the time")  # fmt: skip
    good = True
    for folder in folders:
        if not (folder / "report.json").exists():
            print(f"{folder.name:6}  no report: {folder / 'output.txt'}")
            good = False
            continue
        text, complete = row(folder)
        good = good and complete
        print(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
