#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What docs/recipes shows is what is compiled and run: check_recipes.py PROJECT

- Each page docs/recipes/<name>.md has a program examples/recipes/<name>.cpp (with _ for -), to which it links, and an
  entry in docs/recipes/README.md; each program and each entry has a page.
- Each ```cpp block of a page is in its program: consecutive lines, less an indentation that is common to them.
- Links to files of the project lead to files.
- A program that is copied finds what it includes in quotes beside it: it names no folder, and README.md names the file.
"""

import pathlib
import re
import sys

LANGUAGES = {"cpp", "cmake", "sh", "text"}
wrong = []


def blocks(page, text):
    """(number of its first line, lines) of each cpp block."""
    found, fence = [], None
    for number, line in enumerate(text.splitlines(), 1):
        match = re.fullmatch(r"```(\w*)", line)
        if fence is None and match:
            fence = match[1]
            if fence not in LANGUAGES:
                wrong.append(f"{page}:{number}: a fence says what is in it: {', '.join(sorted(LANGUAGES))}")
            if fence == "cpp":
                found.append((number + 1, []))
        elif line.startswith("```"):
            fence = None
        elif fence == "cpp":
            found[-1][1].append(line)
    if fence is not None:
        wrong.append(f"{page}: a fence is not closed")
    return found


def is_within(block, program):
    """Is it a run of the program's lines, all of them further right by the same number of spaces?"""
    for start in range(len(program) - len(block) + 1):
        lines = program[start : start + len(block)]
        indent = len(lines[0]) - len(lines[0].lstrip(" ")) - (len(block[0]) - len(block[0].lstrip(" ")))
        if indent >= 0 and all((" " * indent + shown if shown else "") == line for shown, line in zip(block, lines)):
            return True
    return False


def check_links(page, text):
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose):
        if "://" not in target and not (page.parent / target).exists():
            wrong.append(f"{page}: links to {target}, which does not exist")


root = pathlib.Path(sys.argv[1])
folder, programs = root / "docs/recipes", root / "examples/recipes"
index = (folder / "README.md").read_text()
check_links(folder / "README.md", index)
pages = {page.stem: page for page in folder.glob("*.md") if page.name != "README.md"}
entries = re.findall(r"^- \[.*?\]\((.*)\.md\)", index, re.MULTILINE)
for name in sorted({name for name in entries if entries.count(name) > 1}):
    wrong.append(f"{folder}/README.md: more than one entry for {name}.md")
for name in sorted(pages.keys() - set(entries)):
    wrong.append(f"{pages[name]}: has no entry in README.md")
for program in sorted(programs.glob("*.cpp")):
    if program.stem.replace("_", "-") not in pages:
        wrong.append(f"{program}: has no page {folder}/{program.stem.replace('_', '-')}.md")

count = 0
for name, page in sorted(pages.items()):
    program = programs / f"{name.replace('-', '_')}.cpp"
    if not program.exists():
        wrong.append(f"{page}: has no program {program}")
        continue
    text, lines = page.read_text(), program.read_text().splitlines()
    for included in re.findall(r'^#include "(.*)"', program.read_text(), re.MULTILINE):
        if "/" in included or not re.search(rf"`{program.name}` with a copy of \[{re.escape(included)}\]", index):
            wrong.append(f"{program}: includes {included}: README.md says to copy it beside the program, without folders")
    check_links(page, text)
    if f"(../../examples/recipes/{program.name})" not in text:
        wrong.append(f"{page}: has no link to ../../examples/recipes/{program.name}")
    shown = blocks(page, text)
    if not shown:
        wrong.append(f"{page}: shows nothing of {program.name}")
    for number, block in shown:
        count += 1
        if not block or not is_within(block, lines):
            wrong.append(f"{page}:{number}: this is not in {program.name}:\n" + "\n".join(block))
if wrong:
    sys.exit("\n".join(wrong))
print(f"{len(pages)} recipes; their {count} cpp blocks are in their programs")
