# SPDX-License-Identifier: Apache-2.0
"""Reads the arguments for equivalent mutants (equivalent.md); writes, and reads, the table of the last
campaign (campaign.md)."""

import collections
import pathlib
import re

from . import derive

FOLDER = pathlib.Path(__file__).parent
ARGUMENTS, TABLE = FOLDER / "equivalent.md", FOLDER / "campaign.md"
PAGE = FOLDER.parent.parent / "docs/reliability.md"  # has the summary between these lines:
BEGIN, END = "<!-- scripts/mutants --write: begin -->\n", "<!-- scripts/mutants --write: end -->\n"
_HEAD = """# The last campaign

`scripts/mutants --write` writes this file. `scripts/mutants --check` lists the mutants that are in no row.

"""
_ARGUMENT = re.compile(r"^- `` ?(.+?) ?``\n((?:  .*\n?|\n(?=  ))+)", re.MULTILINE)


def read_arguments():
    """key -> why no test can tell the mutant from the library as it is."""
    return {key: " ".join(text.split()) for key, text in _ARGUMENT.findall(ARGUMENTS.read_text())}


def state_of(verdict, mutant, arguments):
    if verdict is None:
        return "equivalent, by its argument: not run" if mutant.key in arguments else "ALIVE: not run to the end"
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
        verdict = verdicts.get(mutant.key)
        column = 1 if verdict and not verdict.alive else 2 if mutant.key in arguments else 3
        for kind in (mutant.kind, "all"):
            counts[kind][0] += 1
            counts[kind][column] += 1
    return [(kind, *counts[kind]) for kind in [*derive.KINDS, "all"] if kind in counts]


def summary_lines(mutants, verdicts, arguments):
    lines = ["| kind | mutants | killed | equivalent | alive |", "|---|---:|---:|---:|---:|"]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in summary(mutants, verdicts, arguments)]


def write(mutants, verdicts, arguments, how_it_ran):
    cell = lambda text: text.replace("|", "\\|")
    code = lambda text: f"`` {cell(text)} ``"
    head = [how_it_ran, "", *summary_lines(mutants, verdicts, arguments)]
    rows = ["", "| # | kind | where | source | becomes | verdict | by the test | under |", "|---:|---|---|---|---|---|---|---|"]
    for mutant in mutants:
        verdict = verdicts.get(mutant.key)
        by, under = (verdict.killed_by, verdict.configuration) if verdict else ("", "")
        where = f"{mutant.file}:{mutant.line}" + (f", {mutant.function}" if mutant.function else "")
        rows.append(f"| {mutant.number} | {mutant.kind} | {where} | {code(mutant.source)} | {code(mutant.change)} | "
                    f"{cell(state_of(verdict, mutant, arguments))} | {cell(by)} | {under} |")  # fmt: skip
    TABLE.write_text(_HEAD + "\n".join(head + rows) + "\n")
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{PAGE.name}: there is no {BEGIN.strip()} with its end")
    PAGE.write_text("".join([before, begin, "\n".join(head), "\n", end, after]))


def compare_rows(mutants):
    """Mutants that are in no row of the table; rows that are no mutant's; rows that say ALIVE. Where several mutants
    read the same, there have to be as many rows."""
    rows, alive = collections.Counter(), []
    for text in TABLE.read_text().splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", text)]
        if len(cells) == 10 and cells[1].isdigit():
            _, _, kind, where, source, change, state, *_ = cells
            file, function = re.fullmatch(r"(.+):\d+(?:, )?(.*)", where).groups()
            row = (kind, derive.name_of(file), function, source.strip("` "), change.strip("` "))
            rows[row] += 1
            if state.startswith("ALIVE"):
                alive.append(_row_text(row))
    missing = []
    for mutant in mutants:
        row = (mutant.kind, derive.name_of(mutant.file), mutant.function, mutant.source, mutant.change)
        rows[row] -= 1
        if rows[row] < 0:
            missing.append(mutant)
    return missing, [_row_text(row) for row, count in rows.items() for _ in range(count)], alive


def _row_text(row):
    kind, file, function, source, change = row
    return f"{kind}, {file}, {function}: {source} -> {change}"
