#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
rung_diff.py RUNG        what a rung changes, as a diff: rung_diff.py T4, rung_diff.py I7
rung_diff.py             the number of lines that differ, for every rung of both ladders

A rung is compared with the one that it names as `.after`. Both are taken as their files are, with the loops that they
share with other rungs (LOOPS) in the place of the #include. What says nothing about the loop does not count: comments,
empty lines, #include, using, namespaces, the depth of a line, where a statement is broken, and the rung's number, name
and description.
"""

import difflib
import pathlib
import re
import sys

EXAMPLE = pathlib.Path(__file__).resolve().parent
FOLDERS = (EXAMPLE / "train/rungs", EXAMPLE / "infer/rungs")
# Headers that hold the loop of several rungs.
LOOPS = ("readback_loop.hpp", "packed_loop.hpp", "in_turn.hpp", "in_contexts.hpp")


def description(text, field):
    found = re.search(rf'\.{field} =\s+"([^"]*)"', text)
    return found[1] if found else ""


def statements(text):
    """Lines, where one that goes on in the next is one line."""
    lines = []
    for line in text.splitlines():
        line = re.sub(r"\s+// .*$", "", line)
        if not line.strip() or re.match(r"\s*(//|#|using |namespace )", line) or re.search(r"^\}  // namespace", line):
            continue
        if lines and not re.search(r"[;{}]$|^\s*(public|private):$|>$", lines[-1]):
            lines[-1] += ("" if lines[-1].endswith("(") else " ") + line.strip()
        else:
            lines.append(line.rstrip())
    return lines


def fields(text):
    """What main says of the rung, a line each."""
    call = re.search(r"run_rung\(\s*\{(.*)\},\s*argc", text, re.DOTALL)[1]
    found = re.findall(r"\.(\w+) = ([^,{}]+)", re.sub(r'"[^"]*"', "", call))
    names = ("train", "infer", "infer_records")  # of functions
    return [f"{field} = {field if field in names else value.strip()}" for field, value in found if value.strip()]


def code(path):
    """Of a rung: the lines that count."""
    text = path.read_text()
    described = fields(text)
    text = re.sub(r"^\}  // namespace.*$", "", text[: text.index("int main(")], flags=re.MULTILINE)
    for loop in LOOPS:
        if f'#include "{loop}"' in text:
            shared = re.sub(r"^\}  // namespace.*$", "", (path.parent / loop).read_text(), flags=re.MULTILINE)
            text = text + shared
    return statements(text) + described


def key(line):
    """What of a line is compared."""
    line = re.sub(r"resnet::(rungs::)?|^inline ", "", line.strip())
    return re.sub(r"^void \w+\(Run& run", "void loop(Run& run", line)


def rungs():
    """Number: path"""
    found = {}
    for folder in FOLDERS:
        for path in sorted(folder.glob("[0-9]*.cpp")):
            found[description(path.read_text(), "number")] = path
    return found


def compare(before, after):
    """Of two files: groups of (sign, line), with two lines around what differs."""
    old, new = code(before), code(after)
    matcher = difflib.SequenceMatcher(None, list(map(key, old)), list(map(key, new)), autojunk=False)
    for group in matcher.get_grouped_opcodes(2):
        lines = []
        for tag, begin, end, new_begin, new_end in group:
            if tag == "equal":
                lines += [(" ", line) for line in new[new_begin:new_end]]
            else:
                lines += [("-", line) for line in old[begin:end]] + [("+", line) for line in new[new_begin:new_end]]
        yield lines


def differing(before, after):
    """Lines that are taken away, and lines that are new."""
    return sum(sign != " " for group in compare(before, after) for sign, _ in group)


def main():
    words, found = sys.argv[1:], rungs()
    if "-h" in words or "--help" in words:
        print(__doc__.strip())
        return 0
    if len(words) > 1 or (words and words[0] not in found):
        sys.exit(f"rung_diff.py: no rung {' '.join(words)}; there are {', '.join(found)}")
    if words:
        after = description(found[words[0]].read_text(), "after")
        if not after:
            sys.exit(f"rung_diff.py: {words[0]} changes no other rung")
        print(f"--- {found[after].name}\n+++ {found[words[0]].name}")
        for group in compare(found[after], found[words[0]]):
            print("...", *(sign + line for sign, line in group), sep="\n")
        return 0
    for number, path in found.items():
        if after := description(path.read_text(), "after"):
            print(f"{number:5}{differing(found[after], path):4}  {description(path.read_text(), 'change')}, after {after}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
