#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
run.py TEST PROGRAM LEFT_OUT RESULTS   one test program of a neighbour, under the schedule that the environment names
run.py --sum LEFT_OUT RESULTS          counts what these runs wrote into the folder RESULTS

LEFT_OUT has a line `<program> <case> <reason>` for each case that cannot pass, or with * in place of the case for a program
that cannot be compiled. A case of the list that passes fails the test, and so does one that the program does not have. If the
reason begins with `alone: `, the case has to pass, in a process of its own. What RMM compiles once more for per-thread default
streams (<name>_PTDS_TEST) has the list of <name>_TEST.
"""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile

ALONE = "alone: "

def read_list(file):
    """Of each program its cases, each with its reason."""
    cases = collections.defaultdict(dict)
    for line in pathlib.Path(file).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            program, case, reason = line.split(None, 2)
            cases[program][case] = reason
    return cases


def list_cases(program):
    """The cases of a GoogleTest program; none if it is not one."""
    listed = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, timeout=60)
    cases, suite = [], None
    for line in listed.stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if name.endswith(".") and not name.startswith(" "):
            suite = name
        elif suite and name.startswith("  "):
            cases.append(suite + name.strip())
    return cases


def run(program, filter_, timeout, output=None):
    """Exit status, and of each case that ran: passed, failed or skipped."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        try:
            status = subprocess.run([program, f"--gtest_filter={filter_}", f"--gtest_output=json:{report}"],
                                    stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=timeout).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            status = "time-out"
        results = {}
        if report.exists():
            for suite in json.loads(report.read_text())["testsuites"]:
                for case in suite["testsuite"]:
                    if case["status"] == "RUN":
                        result = "failed" if "failures" in case else "skipped" if case["result"] == "SKIPPED" else "passed"
                        results[f"{suite['name']}.{case['name']}"] = result
        return status, results


def test(name, program, list_file, folder):
    project, target, _ = name.split(".")
    listed = read_list(list_file).get(f"{project}.{target.replace('_PTDS_TEST', '_TEST')}", {})
    left_out = [case for case, reason in listed.items() if not reason.startswith(ALONE)]
    cases = list_cases(program)
    wrong = [f"{case} is in the list, and does not exist" for case in listed if case not in cases]
    if cases:
        status, results = run(program, f"-{':'.join(listed)}" if listed else "*", 500)
        for case in set(listed) - set(left_out):
            alone, result = run(program, case, 60)
            status, results = status or alone, results | result
        for case in cases:
            if case not in left_out and "DISABLED_" not in case:
                results.setdefault(case, "missing")
    else:  # Its exit status is its result.
        status = subprocess.run([program], stdin=subprocess.DEVNULL, timeout=500).returncode
        results = {target: "failed" if status else "passed"}
    for case, result in results.items():
        if result in ("failed", "missing"):
            wrong.append(f"{case} {'failed' if result == 'failed' else 'did not run'}")
    if status:
        wrong.append(f"the exit status is {status}")
    for case in left_out:
        if case in cases and run(program, case, 60, subprocess.DEVNULL)[0] == 0:
            wrong.append(f"{case} is in the list, and passes")
    summary = {"program": f"{project}.{target}", "results": results, "left out": len(left_out), "wrong": wrong}
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    pathlib.Path(folder, f"{name}.json").write_text(json.dumps(summary))
    print(f"{name}: {'; '.join(wrong) or f'{len(results)} cases, as they should be'}")
    return 1 if wrong else 0


def sum_up(list_file, folder):
    """Prints what was left out and skipped, and counts; the exit status is 0 when all is as it should be."""
    runs = {path.stem: json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("*.json"))}
    for name, summary in runs.items():
        for text in summary["wrong"]:
            print(f"{name}: {text}")
    lines = []
    for project in sorted({name.split(".")[0] for name in runs}):
        own = {name: summary for name, summary in runs.items() if name.startswith(project + ".")}
        counts = collections.Counter(result for summary in own.values() for result in summary["results"].values())
        listed = {program: cases for program, cases in read_list(list_file).items() if program.startswith(project + ".")}
        for program, cases in listed.items():
            for case, reason in cases.items():
                if not reason.startswith(ALONE):
                    print(f"left out: {program} {case}: {reason}")
        skipped = collections.defaultdict(set)
        for summary in own.values():
            skipped[summary["program"]] |= {case for case, result in summary["results"].items() if result == "skipped"}
        for program, cases in skipped.items():
            if cases:
                print(f"skipped by itself: {program}, {len(cases)} cases, such as {min(cases)}")
        lines.append(f"{project}: {len({summary['program'] for summary in own.values()})} programs, "
                     f"{len({name.split('.')[2] for name in own})} schedules: {counts['passed']} cases passed, "
                     f"{counts['failed'] + counts['missing']} failed, {counts['skipped']} skipped by themselves, "
                     f"{sum(summary['left out'] for summary in own.values())} left out; programs not compiled: "
                     f"{sum('*' in cases for cases in listed.values())}")  # fmt: skip
    print("\n".join(lines))
    return 1 if not runs or any(summary["wrong"] for summary in runs.values()) else 0


if __name__ == "__main__":
    sys.exit(sum_up(*sys.argv[2:]) if sys.argv[1:2] == ["--sum"] else test(*sys.argv[1:]))
