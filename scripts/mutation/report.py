# SPDX-License-Identifier: Apache-2.0
"""docs/mutants.md: reads the arguments for equivalent mutants, writes the table of the last campaign."""

import collections
import re

from . import derive

_BEGIN, _END = "<!-- scripts/mutants writes from here -->", "<!-- to here -->"
_ARGUMENT = re.compile(r"^- `` ?(.+?) ?``\n((?:  .*\n?|\n(?=  ))+)", re.MULTILINE)


def read_arguments(path):
    """key -> why no test can tell the mutant from the library as it is."""
    return {key: " ".join(text.split()) for key, text in _ARGUMENT.findall(path.read_text())} if path.exists() else {}


def state_of(verdict, mutant, arguments):
    if not verdict.alive:
        return f"killed: {verdict.how}"
    if mutant.key in arguments:
        return "equivalent"
    return "ALIVE" if verdict.reached else "ALIVE: no test passes by it"


def line(mutant, verdict, arguments):
    by = "" if verdict.alive else f'\n        by "{verdict.killed_by}", {verdict.configuration}'
    return (f"{mutant.number:4}  {mutant.kind}, {mutant.file}:{mutant.line}  {mutant.source} -> {mutant.change}\n"
            f"      {state_of(verdict, mutant, arguments)}{by}")  # fmt: skip


def summary(mutants, verdicts, arguments):
    """(kind, mutants, killed, equivalent, alive) for each kind, then for all."""
    counts = collections.defaultdict(lambda: [0, 0, 0, 0])
    for mutant in mutants:
        verdict = verdicts[mutant.key]
        column = 1 if not verdict.alive else 2 if mutant.key in arguments else 3
        for kind in (mutant.kind, "all"):
            counts[kind][0] += 1
            counts[kind][column] += 1
    return [(kind, *counts[kind]) for kind in [*derive.KINDS, "all"] if kind in counts]


def write(path, mutants, verdicts, arguments, how_it_ran):
    """Replaces what stands between the two marks."""
    cell = lambda text: text.replace("|", "\\|")
    code = lambda text: f"`` {text.replace('|', chr(92) + '|')} ``"
    rows = [f"{how_it_ran}\n", "| kind | mutants | killed | equivalent | alive |", "|---|---:|---:|---:|---:|"]
    rows += ["| " + " | ".join(map(str, row)) + " |" for row in summary(mutants, verdicts, arguments)]
    rows += ["", "| # | kind | where | source | becomes | verdict | by the test | under |", "|---:|---|---|---|---|---|---|---|"]
    for mutant in mutants:
        verdict = verdicts[mutant.key]
        where = f"{mutant.file}:{mutant.line}"
        rows.append(f"| {mutant.number} | {mutant.kind} | {where} | {code(mutant.source)} | {code(mutant.change)} | "
                    f"{cell(state_of(verdict, mutant, arguments))} | {cell(verdict.killed_by)} | {verdict.configuration} |")  # fmt: skip
    text = path.read_text()
    head, rest = text.split(_BEGIN)
    path.write_text(f"{head}{_BEGIN}\n" + "\n".join(rows) + f"\n{_END}{rest.split(_END)[1]}")
