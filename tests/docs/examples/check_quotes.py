#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_quotes.py PROJECT: what README.md and the pages of docs quote as output is what a source of the project says.

Of each ```text fence, each run of five or more words between numbers and punctuation is looked up in the string literals
of include, src, examples and scripts. A message is made of several literals and of names that the program inserts: so a
run may consist of the end of one literal, whole ones and the beginning of another, with at most two other words between
them. Fences with code or with ThreadSanitizer's words are left out.
"""

import functools
import pathlib
import re
import sys

CODE = {".cpp", ".cu", ".cuh", ".hpp", ".py"}
LITERAL = r'"((?:[^"\\\n]|\\.)*)"'
BETWEEN = re.compile(r"%[-+.*0-9]*(?:ll|l|z)?[a-z]|[0-9:;,()\[\]\"`/=|.<>{}*%$#]+|\s{3,}")
SHORTEST, INSERTED = 5, 2  # words


def texts_of(path):
    """The string literals of a source, adjacent ones as one; of a script, its lines."""
    text = path.read_text(errors="replace")
    if path.suffix not in CODE:
        return text.splitlines()
    return [first + "".join(re.findall(LITERAL, others))
            for first, others in re.findall(LITERAL + r"((?:\s*" + LITERAL.replace("(", "(?:", 1) + ")*)", text)]  # fmt: skip


def runs(text):
    """The words between numbers and punctuation."""
    for run in BETWEEN.split(re.sub(r"\\[nt]", " ", text)):
        words = tuple(re.findall(r"[A-Za-z_']+", run))
        if words:
            yield words


class Sayings:
    """What the sources say."""

    def __init__(self, root):
        self.within, self.beginnings, self.ends, self.whole = set(), set(), set(), set()
        for folder in ("include", "src", "examples", "scripts"):
            for path in (root / folder).rglob("*"):
                if path.suffix in CODE | {".cmake", ".js", ".sh"} or (path.is_file() and not path.suffix):
                    for text in texts_of(path):
                        self.add(text)

    def add(self, text):
        for words in runs(text):
            self.whole.add(words)
            for begin in range(len(words)):
                self.beginnings.add(words[: begin + 1])
                self.ends.add(words[begin:])
                for end in range(begin + 1, min(len(words), begin + 40) + 1):
                    self.within.add(words[begin:end])

    def has(self, words):
        @functools.lru_cache(None)
        def rest(at, inserted):
            if at == len(words):
                return True
            for end in range(len(words), at + 1, -1):  # A single word says nothing.
                first, last = at == 0, end == len(words)
                known = self.within if first and last else self.ends if first else self.beginnings if last else self.whole
                if words[at:end] in known and rest(end, inserted):
                    return True
            return inserted < INSERTED and rest(at + 1, inserted + 1)

        return rest(0, 0)


def paragraphs(page):
    """(number of the first line, text) of what stands in text fences; lines that are further right continue one."""
    fence = None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        match = re.fullmatch(r"```(\w*)", line)
        if fence is None:
            fence, found = (match[1], []) if match else (None, None)
        elif line.startswith("```"):
            if fence == "text" and not re.search(r"ThreadSanitizer|[;{]$|^ *for .*:", "\n".join(t for _, t in found), re.M):
                yield from found
            fence = None
        elif found and line.startswith("  "):
            found[-1] = (found[-1][0], found[-1][1] + " " + line.strip())
        else:
            found.append((number, line))


def main():
    root = pathlib.Path(sys.argv[1])
    sayings, wrong, count = Sayings(root), [], 0
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        for number, text in paragraphs(page):
            for words in runs(text):
                if len(words) < SHORTEST:
                    continue
                count += 1
                if not sayings.has(words):
                    wrong.append(f"{page}:{number}: no source says: {' '.join(words)}")
    if wrong:
        sys.exit("\n".join(wrong))
    if count < 50:
        sys.exit(f"FAILED: only {count} quotes were found")
    print(f"{count} quotes of the pages are in the sources")


main()
