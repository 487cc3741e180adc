#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of rules in docs/emulation.md: every function of functions.def has a row, every test that
a row names exists, and every rule test is named. A test of a *_rules_test.cpp file stands in plain
quotes, since it runs over the real runtime too; any other in italics.

    rule_table.py SOURCE_DIR
"""

import pathlib
import re
import sys

HEADING = "## The rules, function by function"
COLUMNS = 4
TEST_CASE = re.compile(r'TEST_CASE\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)[,)]')


def read_tests(folder):
    """The names of the test cases of one kind of file."""
    rules, others = set(), set()
    for path in sorted(folder.glob("*_test.cpp")):
        names = rules if path.name.endswith("_rules_test.cpp") else others
        for match in TEST_CASE.finditer(path.read_text()):
            names.add("".join(re.findall(r'"((?:[^"\\]|\\.)*)"', match.group(1))))
    return rules, others


def read_rows(page):
    """The rows of the table, as lists of cells."""
    section = page.split(HEADING, 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def check(source):
    page = (source / "docs/emulation.md").read_text()
    functions = set(re.findall(r"^FUNCTION\((\w+),", (source / "src/emulation/functions.def").read_text(), re.M))
    rules, others = read_tests(source / "tests/emulation")
    wrong, rows, named, listed = [], read_rows(page), set(), set()
    for row in rows:
        if len(row) != COLUMNS or not all(row):
            wrong.append(f"not {COLUMNS} cells, or an empty one: {row[0]}")
            continue
        if '"' not in row[1]:
            wrong.append(f"no test: {row[0]}")
        listed.update(re.findall(r"`(cuda\w+)`", row[0]))
        for italics, name in re.findall(r'(\*?)"([^"]+)"', " ".join(row[1:])):
            named.add(name)
            if name not in rules | others:
                wrong.append(f"there is no such test: {name}")
            elif (name in others) != bool(italics):
                wrong.append(f"{'a rule test in italics' if italics else 'no rule test, and not in italics'}: {name}")
    wrong += [f"no row: {name}" for name in sorted(functions - listed)]
    handles = {"cudaStreamLegacy", "cudaStreamPerThread"}
    wrong += [f"no function of functions.def: {name}" for name in sorted(listed - functions - handles)]
    wrong += [f"a rule test that no row names: {name}" for name in sorted(rules - named)]
    return wrong, len(functions), len(named)


if __name__ == "__main__":
    problems, function_count, test_count = check(pathlib.Path(sys.argv[1]))
    if problems:
        sys.exit("docs/emulation.md, " + HEADING[3:] + ":\n  " + "\n  ".join(problems))
    print(f"{function_count} functions, {test_count} tests")
