#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that a manual page has the options that --help prints, and no others, and what --version prints.

Use: man_test.py PROGRAM PAGE VERSION
"""
import pathlib
import re
import subprocess
import sys


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def main():
    program, page, version = sys.argv[1:]
    name, text = pathlib.Path(program).name, pathlib.Path(page).read_text()
    commands = re.findall(r"^\.Cm (\w+)$", text, re.M)
    helps = [output(program, *command, "--help") for command in [[], *([command] for command in sorted(set(commands)))]]
    printed = {option for help_text in helps for option in re.findall(r"^  (?:-\w,)?--([a-z-]+)", help_text, re.M)}
    described = set(re.findall(r"\bFl (?:\w , )?-([a-z][a-z-]*)", "\n".join(re.findall(r"^\.It .*", text, re.M))))
    problems = [f"{page} has no --{option}" for option in sorted(printed - described)]
    problems += [f"{name} has no --{option}, which {page} describes" for option in sorted(described - printed)]
    if (said := output(program, "--version").strip()) != f"{name} {version}":
        problems.append(f"--version prints: {said}")
    print("\n".join(problems) or f"{page} has the {len(printed)} options of {name} {version}")
    return 1 if problems or len(printed) < 5 else 0


sys.exit(main())
