# SPDX-License-Identifier: Apache-2.0
"""Checks where figures are. docs/measured/ has the measured figures, with machine, commit and date. If a section of another
page (from one heading to the next) has a measured figure, it needs a link into docs/measured/. The other pages must not
name a commit, a month or a machine. Code is not checked. These are measured figures:
  a rate        a number with a unit by time, such as 12 images/s
  a comparison  3 times as fast, 12 % faster
  a duration    a number of ns, us, ms or s in a sentence with take, cost or measured
  a cell        a number in a table whose head has such a unit
A limit ("at most 2 s", "more than 2 s"), a default and a time to wait are not measured figures."""

import re

import links

MEASURED = "docs/measured/"
LEFT_OUT = ("CHANGELOG.md", "tests/", "scripts/", MEASURED)  # a change log is about the past
MAY_NAME_MACHINES = ("README.md",)  # its table says where its figures were measured
NUMBER, TIME, RATE = r"(?<![\w.,-])\d[\d.,]*", r"(?:ns|us|µs|ms|s|seconds?|minutes?)\b", r"(?:\w+/s|\w+ (?:a|per) second)\b"
LIMIT = re.compile(rf"\b(?:at most|at least|more than|over|up to)(?: the)? {NUMBER} {TIME}")
FIGURE = re.compile(rf"{NUMBER}(?: M| million)? {RATE}|{NUMBER}(?: %| times)? (?:as fast|faster|slower)"
                    rf"|\b(?:tak(?:es?|en)|took|costs?|measured)\b.*{NUMBER} {TIME}|{NUMBER} {TIME}.*\b(?:took|measured)\b")  # fmt: skip
HEAD = re.compile(rf"\|.*(?:\w/s\b|[,;:] {TIME}|\b{TIME} *\|)")
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
ORIGIN = re.compile(rf"\bcommits? [0-9a-f]{{7,}}\b|\b20\d\d-\d\d-\d\d\b|\b(?:{MONTHS}) 20\d\d\b|\bH[12]00s?\b|\bEPYC\b|\bXeon\b")


def sections(text):
    """Returns (number, line) of the prose of each section."""
    found = [[]]
    for number, line in links.prose(text):
        if re.match(r"#{1,6} ", line):
            found.append([])
        found[-1].append((number, re.sub(r"`[^`]*`", "`code`", line)))
    return found


def figures(lines):
    """Yields (number of the last line, text) of each sentence and each row that has a figure."""
    text, head = "", ""
    for number, line in [*lines, (lines[-1][0] if lines else 0, "")]:
        row = line.startswith("|")
        head = (head or line) if row else ""
        if row and (FIGURE.search(line) or (HEAD.search(head) and re.search(r"\| *\**\d", line))):
            yield number, line
        if line and not row and not re.match(r"\s*(- |\d+\. |#)", line):
            text += " " + line
            continue
        yield from ((number, one) for one in re.split(r"(?<=[.;:?!]) ", text) if FIGURE.search(LIMIT.sub("limit", one)))
        text = "" if row else line


def is_linked(page, text):
    targets = (links.split(page, target)[0] for _, target in links.links(text))
    return any(there.is_relative_to(links.ROOT / MEASURED) for there in targets)


def check():
    """Returns lines for the user."""
    for page in links.pages():
        for lines in sections((links.ROOT / page).read_text()) if not page.startswith(LEFT_OUT) else ():
            if not is_linked(page, "\n".join(line for _, line in lines)):
                for number, text in figures(lines):
                    yield f"{page}:{number}: a measured figure, and no link into {MEASURED} in its section: {text.strip()[:80]}"
            for number, line in lines if page not in MAY_NAME_MACHINES else ():
                if origin := ORIGIN.search(line):
                    yield f"{page}:{number}: \"{origin[0]}\": commits, dates and machines are named in {MEASURED}"
