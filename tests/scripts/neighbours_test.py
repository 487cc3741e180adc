#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""neighbours_test.py PROJECT: what scripts/neighbours takes for a failure, with a program that answers as GoogleTest's do"""

import pathlib
import subprocess
import sys
import tempfile

project = pathlib.Path(sys.argv[1]).resolve()
RUN = project / "tests/emulation/neighbours/run.py"
# Its cases, and what becomes of each: passed, failed, skipped, or the exit status that the program ends with there.
PROGRAM = """#!/usr/bin/env python3
import fnmatch, json, sys
cases = {cases}
options = dict(word.split("=", 1) if "=" in word else (word, "") for word in sys.argv[1:])
if "--gtest_list_tests" in options:
    print("Running main() from a library\\nSuite.\\n" + "".join(f"  {{case}}  # GetParam() = 1\\n" for case in cases))
    sys.exit(0)
chosen, _, without = options["--gtest_filter"].partition("-")
ran = [case for case in cases if fnmatch.fnmatch("Suite." + case, chosen or "*") and "Suite." + case not in without.split(":")]
suite = []
for case in ran:
    if isinstance(cases[case], int):
        sys.exit(cases[case])
    suite.append({{"name": case, "status": "RUN", "result": "SKIPPED" if cases[case] == "skipped" else "COMPLETED",
                   **({{"failures": [{{}}]}} if cases[case] == "failed" else {{}})}})
json.dump({{"testsuites": [{{"name": "Suite", "testsuite": suite}}]}}, open(options["--gtest_output"][5:], "w"))
sys.exit("failed" in [cases[case] for case in ran])
"""
failures = []


def check(what, cases, left_out, status, *texts):
    """Runs a program with these cases and this list, then sums up: both end with that status, and say these texts."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        program, list_file = folder / "program", folder / "left_out.txt"
        program.write_text(PROGRAM.format(cases=cases))
        program.chmod(0o755)
        list_file.write_text("# a comment\n" + left_out)
        ran = subprocess.run([RUN, "rmm.POOL_PTDS_TEST.lazy", program, list_file, folder / "results"], capture_output=True, text=True)
        summed = subprocess.run([RUN, "--sum", list_file, folder / "results"], capture_output=True, text=True)
    said = ran.stdout + ran.stderr + summed.stdout + summed.stderr
    if (ran.returncode, summed.returncode) != (status, status) or not all(text in said for text in texts):
        failures.append(f"{what}: exit status {ran.returncode} and {summed.returncode}\n{said}")


good = {"a": "passed", "b/0": "passed", "c": "skipped"}
check("all is well", good, "", 0, "1 programs, 1 schedules: 2 cases passed, 0 failed, 1 skipped by themselves, 0 left out",
      "skipped by itself: rmm.POOL_PTDS_TEST, 1 cases, such as Suite.c")  # fmt: skip
check("a case fails", {**good, "d": "failed"}, "", 1, "Suite.d failed", "2 cases passed, 1 failed")
check("a case that fails is left out", {**good, "d": "failed"}, "rmm.POOL_TEST Suite.d it needs a kernel\n", 0,
      "left out: rmm.POOL_TEST Suite.d: it needs a kernel", "1 left out")  # fmt: skip
check("a case that crashes is left out", {**good, "d": 139}, "rmm.POOL_TEST Suite.d it needs a kernel\n", 0, "1 left out")
check("a case that is left out passes", good, "rmm.POOL_TEST Suite.a it needs a kernel\n", 1, "Suite.a is in the list", "passes")
check("a case that is left out does not exist", good, "rmm.POOL_TEST Suite.e it needs a kernel\n", 1, "Suite.e is in the list",
      "does not exist")  # fmt: skip
check("the list is for another program", {"d": "failed"}, "rmm.OTHER_TEST Suite.d it needs a kernel\n", 1, "Suite.d failed")
check("a case has a process of its own", {**good, "d": 0}, "rmm.POOL_TEST Suite.d alone: it ends the process\n", 1, "Suite.d did not run",
      "2 cases passed, 1 failed, 1 skipped by themselves, 0 left out")  # fmt: skip
check("a case passes in a process of its own", good, "rmm.POOL_TEST Suite.a alone: it changes the others\n", 0,
      "2 cases passed, 0 failed, 1 skipped by themselves, 0 left out")  # fmt: skip
check("a case fails in a process of its own", {**good, "d": "failed"}, "rmm.POOL_TEST Suite.d alone: it changes the others\n", 1,
      "Suite.d failed", "the exit status is 1")  # fmt: skip
check("a program crashes", {**good, "d": 139}, "", 1, "Suite.a did not run", "the exit status is 139", "4 failed")
check("a program is left out", good, "rmm.KERNEL_TEST * it is a kernel\nkvikio.NET_TEST * a network\n", 0,
      "left out: rmm.KERNEL_TEST *: it is a kernel", "0 left out; programs not compiled: 1")  # fmt: skip

with tempfile.TemporaryDirectory() as empty:
    if subprocess.run([RUN, "--sum", "/dev/null", empty], capture_output=True).returncode != 1:
        failures.append("no results are no success")
for line in (project / "tests/emulation/neighbours/left_out.txt").read_text().splitlines():
    if line and not line.startswith("#") and (len(line.split(None, 2)) < 3 or line.split(".")[0] not in ("rmm", "kvikio")):
        failures.append(f"left_out.txt: not `<program> <case> <reason>`: {line}")
if failures:
    sys.exit("\n".join(failures))
print("what is left out is checked, and everything is counted")
