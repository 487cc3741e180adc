#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rules.py [--check [HEADER]]   writes docs/emulation-rules.md from the tests of the emulated runtime

Sources of the page, all in tests/emulation:
  *_rules_test.cpp         each test is a rule that is held, so it also passes over the real runtime. The comment at the
                           top is the text of the section, "The rules of <title>: ...". Its last sentence names the
                           functions of the section: "Functions: cudaEvent*, cudaStreamWaitEvent."
  other *_test.cpp         a test is a rule if it has the tag [held], [looser], [stricter] or [absent], and the tag of
                           its section. The last sentence above a test that is not held begins with "A GPU" or "CUDA".
  absent_functions.txt     the functions that do not exist
  races/*.cpp              the page counts these programs; those whose race ThreadSanitizer cannot see have a reason
src/emulation/functions.def has the functions that exist.

--check checks that the page is what the sources give, that every function has a section and, with HEADER (a
cuda_runtime_api.h), that no function of the header is left out. It needs only Python. scripts/docs --check and CTest
(penstock_emulation_rules) call it."""

import collections
import fnmatch
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = "docs/emulation-rules.md"
VERDICTS = {
    "held": "the emulation does what CUDA documents, or what a GPU was seen to do",
    "looser": "a GPU may refuse, delay or reorder what the emulation lets pass: a test misses programs that rely on it",
    "stricter": "the emulation refuses, delays or overwrites what a GPU may let pass",
    "absent": "CUDA documents it, and the emulation does not have it",
}
STRING = r'"(?:[^"\\]|\\.)*"'
TEST_CASE = re.compile(rf"((?:^//.*\n)*)^TEST_CASE\(\s*((?:{STRING}\s*)+),\s*((?:{STRING}\s*)+)\)", re.M)
SCENARIO = re.compile(rf"^    \{{({STRING}),\s+\w+(?:,\s*((?:{STRING}\s*)+))?\}},$", re.M)
FUNCTION = re.compile(r"^FUNCTION\((\w+), (.*)\)$", re.M)

Rule = collections.namedtuple("Rule", "name verdict difference on_gpu file")
Section = collections.namedtuple("Section", "tag title text functions rules")


def text_of(literals):
    """Returns the text of one C++ string literal, or of several in a row."""
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals)).replace('\\"', '"')


def comment(lines):
    return " ".join(line.removeprefix("//").strip() for line in lines.splitlines()).strip()


def head(source):
    """Returns the first comment of a file, without the licence line."""
    return comment(re.search(r"^// SPDX.*\n\n((?://.*\n)+)", source).group(1))


def tests(path):
    """Returns (name, tags, the comment above it) of each test of a file."""
    return [(text_of(match[2]), re.findall(r"\[([^\]]+)\]", text_of(match[3])), comment(match[1]))
            for match in TEST_CASE.finditer(path.read_text())]  # fmt: skip


def functions():
    """Returns the classes of each function of functions.def, by name."""
    text = (ROOT / "src/emulation/functions.def").read_text()
    return {name: "" if classes == "0" else classes.replace(" |", ",") for name, classes in FUNCTION.findall(text)}


def sections(problems):
    """Returns the sections in the order of their titles. A file's own section is that of its first test. If several files have the
    same section, the one with the most tests gives the title."""
    found, files = {}, sorted((ROOT / "tests/emulation").glob("*_test.cpp"))
    of_rules = [path for path in files if path.name.endswith("_rules_test.cpp")]
    for path in sorted(of_rules, key=lambda path: -len(tests(path))):
        text, _, patterns = head(path.read_text()).partition(" Functions: ")
        title, tag = re.match(r"The rules of ([^:.,]+)", text), (tests(path)[0][1] + ["", ""])[1]
        if title is None:
            problems.append(f'{path.name}: the comment at the top does not begin with "The rules of"')
            continue
        section = found.setdefault(tag, Section(tag, title[1][0].upper() + title[1][1:], [], [], []))
        section.text.append(text)
        section.functions.extend(patterns.rstrip(".").split(", ") if patterns else [])
    for path in files:
        for name, tags, above in tests(path):
            verdicts = [tag for tag in tags if tag in VERDICTS]
            where = [tag for tag in tags if tag in found]
            difference = re.search(r"(?:^|(?<=[.:] ))((?:A GPU|CUDA) .*)$", above)
            if path in of_rules and (tags[0] != "rules" or not where or verdicts):
                problems.append(f'{path.name}, "{name}": the tags are not [rules][<section>]')
            elif path in of_rules:
                found[where[0]].rules.append(Rule(name, "held", "", True, path.name))
            elif verdicts and (len(verdicts) > 1 or not where):
                problems.append(f'{path.name}, "{name}": not one verdict, or no tag of a section ({", ".join(found)})')
            elif verdicts and verdicts[0] != "held" and difference is None:
                problems.append(f'{path.name}, "{name}": no sentence above it that begins with "A GPU" or "CUDA"')
            elif verdicts:
                said = difference[1] if difference and verdicts[0] != "held" else ""
                found[where[0]].rules.append(Rule(name, verdicts[0], said, False, path.name))
    for section in found.values():
        section.rules.sort(key=lambda rule: not rule.on_gpu)
    return sorted(found.values(), key=lambda section: section.title.lower())


def absent(problems):
    """Returns (sentence, functions) of each paragraph of absent_functions.txt."""
    paragraphs = (ROOT / "tests/emulation/absent_functions.txt").read_text().split("\n\n")[1:]
    found = []
    for paragraph in paragraphs:
        sentence, _, names = paragraph.partition("\n")
        found.append((sentence, names.split()))
    listed = [name for _, names in found for name in names]
    problems += [f"absent_functions.txt: twice: {name}" for name in sorted(set(listed)) if listed.count(name) > 1]
    return found


def scenarios():
    """Returns the number of correct race programs, of wrong ones, and (name, reason) of those that are not seen."""
    found = []
    for path in sorted((ROOT / "tests/emulation/races").glob("*.cpp")):
        found += [(text_of(name), text_of(reason)) for name, reason in SCENARIO.findall(path.read_text())]
    right = [name for name, _ in found]
    unseen = [(name, reason) for name, reason in found if reason]
    return len(right), len(right) - len(unseen), unseen


def section_of(name, all_sections):
    """Returns the section with the longest pattern that matches."""
    fits = [(len(pattern.rstrip("*")), section) for section in all_sections for pattern in section.functions
            if fnmatch.fnmatchcase(name, pattern)]  # fmt: skip
    return max(fits, key=lambda fit: fit[0])[1] if fits else None


def anchor(title):
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def table(columns, rows):
    return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *("| " + " | ".join(row) + " |" for row in rows), ""]


def capital(text):
    return text if text.startswith("cuda") else text[:1].upper() + text[1:]


def row(rule):
    sentence = capital(rule.name) + "."
    return [f"{sentence} {rule.difference}".strip(), rule.verdict, "yes" if rule.on_gpu else "", f"`{rule.file}`"]


def page(problems):
    known, all_sections, families = functions(), sections(problems), absent(problems)
    names = [rule.name for section in all_sections for rule in section.rules]
    problems += [f"two tests have one name: {name}" for name in sorted(set(names)) if names.count(name) > 1]
    families = [(sentence, [name for name in of_it if name not in known]) for sentence, of_it in families]
    families = [(sentence, of_it) for sentence, of_it in families if of_it]
    right, wrong, unseen = scenarios()
    count = collections.Counter(rule.verdict for section in all_sections for rule in section.rules)
    count["absent"] += len(families)
    on_gpu = sum(rule.on_gpu for section in all_sections for rule in section.rules)
    lines = [
        "# The rules of the emulated runtime", "",
        "What CUDA documents about its runtime, and what [`penstock::emulated`](emulation.md) does. Each rule is a test of",
        "[tests/emulation](../tests/emulation), and its first sentence is the name of that test:",
        '`penstock_emulation_tests "captured work does not run"`. The second sentence says how a GPU may differ.', "",
        *table(["verdict", "meaning", "rules"], [[verdict, text, f"{count[verdict]:,}"] for verdict, text in VERDICTS.items()]),
        f"{on_gpu} rules, marked *on a GPU*, are tests of files `*_rules_test.cpp`, which pass over the real runtime, too",
        "(`scripts/gpu-check tests`; [the results](measured/reliability.md#what-was-verified-where) say on which GPU, and when). The others are shown by the",
        "emulation alone: no program can provoke them on a GPU, or CUDA leaves them open.", "",
        "`scripts/doc_site/rules.py` writes this page, and says in its help what of a test it reads. A test of CTest",
        "(`penstock_emulation_rules`) and `scripts/docs --check` fail if the page is not what the tests say.", "",
    ]  # fmt: skip
    for section in all_sections:
        of_it = [name for name in known if section_of(name, all_sections) is section]
        lines += [f"## {section.title}", "", *section.text, ""]
        if of_it:
            lines += ["Functions: " + ", ".join(f"`{name}`" for name in of_it) + ".", ""]
        lines += table(["rule", "verdict", "on a GPU", "test in"], map(row, section.rules))
    problems += [f"no section is about {name}: name it in the comment of a *_rules_test.cpp"
                 for name in known if section_of(name, all_sections) is None]  # fmt: skip
    for section in all_sections:
        problems += [f"{section.title}: no function is called {pattern}" for pattern in section.functions
                     if not any(fnmatch.fnmatchcase(name, pattern) for name in known)]  # fmt: skip
    lines += ["## Functions that do not exist", "", "A program that calls one of these does not link.", ""]
    lines += table(["rule", "verdict", "functions"],
                   [[sentence, "absent", ", ".join(f"`{name}`" for name in of_it)] for sentence, of_it in families])  # fmt: skip
    lines += ["## What ThreadSanitizer sees", "",
              f"[tests/emulation/races](../tests/emulation/races) has {right} correct programs, none of which is reported, and",
              f"{wrong + len(unseen)} racy ones. Each racy program is a correct one with one line left out or moved. {wrong} of them are",
              "reported as a data race, under every schedule. The others are never reported:", "",
              *table(["racy program", "why ThreadSanitizer cannot see it"], [[f"`{name}`", reason] for name, reason in unseen])]  # fmt: skip
    lines += ["## The calls", "",
              "`cudaGetErrorName`, `cudaGetErrorString`, and those below. The classes are counted by `emulation::call_classes`:", "",
              *table(["class", "meaning"], classes()),
              *table(["function", "classes", "rules"],
                     [[f"`{name}`", of_it, link(section_of(name, all_sections))] for name, of_it in known.items()])]  # fmt: skip
    return "\n".join(lines)


def classes():
    """Returns (name, meaning) of each class, from the comment of functions.def."""
    text = (ROOT / "src/emulation/functions.def").read_text()
    return [list(found) for found in re.findall(r"^//   (\w+) +(.*)$", text, re.M)]


def link(section):
    return f"[{section.title.lower()}](#{anchor(section.title)})" if section else ""


def declared(header):
    """Returns the functions that a header declares. Versions of a function have the same name."""
    text = re.sub(r"/\*.*?\*/", "", pathlib.Path(header).read_text(), flags=re.S)
    names = re.findall(r"CUDARTAPI(?:_CDECL)?\s+(cuda\w+)\s*\(", text)
    return {re.sub(r"(_v\d+|_ptsz|_ptds)$", "", name) for name in names}


def check(header=None):
    """Returns what is wrong."""
    problems = []
    text = page(problems)
    if not (ROOT / PAGE).exists() or (ROOT / PAGE).read_text() != text:
        problems.append(f"{PAGE} is not what the tests say: scripts/doc_site/rules.py writes it")
    if header is not None:
        listed = set(functions()) | {"cudaGetErrorName", "cudaGetErrorString"}
        listed |= {name for _, names in absent([]) for name in names}
        problems += [f"{header} declares {name}, which neither functions.def nor absent_functions.txt has"
                     for name in sorted(declared(header) - listed)]  # fmt: skip
    return problems


def main(words):
    if words in (["--help"], ["-h"]) or (words and words[0] != "--check") or len(words) > 2:
        print(__doc__)
        return 0 if words in (["--help"], ["-h"]) else 2
    if not words:
        problems = []
        (ROOT / PAGE).write_text(page(problems))
    else:
        problems = check(*words[1:])
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
