# SPDX-License-Identifier: Apache-2.0
"""Reads the arguments for equivalent mutants (equivalent.md). Writes the table of a campaign, and the summary in
docs/measured/reliability.md. Keeps which test case killed which mutant, for the next campaign (killers.tsv)."""

import collections
import hashlib
import pathlib
import re

from . import derive

FOLDER = pathlib.Path(__file__).parent
ARGUMENTS = FOLDER / "equivalent.md"
KILLERS = FOLDER / "killers.tsv"  # test case, configuration, digests of the keys of the mutants that it killed
PAGE = FOLDER.parent.parent / "docs/measured/reliability.md"  # has the summary between these lines:
BEGIN, END = "<!-- scripts/mutants --write: begin -->\n", "<!-- scripts/mutants --write: end -->\n"
_ARGUMENT = re.compile(r"^- `` ?(.+?) ?``\n((?:  .*\n?|\n(?=  ))+)", re.MULTILINE)


def read_arguments():
    """Maps a mutant's key to the argument why no test can tell it from the unchanged library."""
    return {key: " ".join(text.split()) for key, text in _ARGUMENT.findall(ARGUMENTS.read_text())}


def digest_of(mutant):
    return hashlib.sha256(mutant.key.encode()).hexdigest()[:8]


def read_killers():
    """Maps a mutant's digest to the test case and the configuration that killed it in an earlier campaign."""
    rows = [line.split("\t") for line in KILLERS.read_text().splitlines()] if KILLERS.exists() else []
    return {digest: (test, configuration) for test, configuration, digests in rows for digest in digests.split()}


def write_killers(mutants, verdicts):
    """Writes what killed the mutants; of those that have not been run, what killed them earlier."""
    known, by = read_killers(), collections.defaultdict(list)
    for mutant in mutants:
        digest, verdict = digest_of(mutant), verdicts.get(mutant.key)
        killer = known.get(digest) if verdict is None else (verdict.killed_by, verdict.configuration)
        if killer and killer[0]:
            by[killer].append(digest)
    KILLERS.write_text("".join(f"{test}\t{configuration}\t{' '.join(sorted(by[test, configuration]))}\n"
                               for test, configuration in sorted(by)))  # fmt: skip


def state_of(verdict, mutant, arguments):
    if verdict is None:
        return "equivalent, by its argument: not run" if mutant.key in arguments else "not run to the end"
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
    """Returns (kind, mutants, killed, equivalent, alive, not run) for each kind, and then for all."""
    counts = collections.defaultdict(lambda: [0, 0, 0, 0, 0])
    for mutant in mutants:
        verdict = verdicts.get(mutant.key)
        column = 1 if verdict and not verdict.alive else 2 if mutant.key in arguments else 3 if verdict else 4
        for kind in (mutant.kind, "all"):
            counts[kind][0] += 1
            counts[kind][column] += 1
    return [(kind, *counts[kind]) for kind in [*derive.KINDS, "all"] if kind in counts]


def summary_lines(mutants, verdicts, arguments):
    lines = ["| kind | mutants | killed | equivalent | alive | not run |", "|---|---:|---:|---:|---:|---:|"]
    return lines + ["| " + " | ".join(map(str, row)) + " |" for row in summary(mutants, verdicts, arguments)]


def write(table, mutants, verdicts, arguments, how_it_ran):
    """Writes a row for each mutant to the file `table`, and the summary to the page."""
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
    table.write_text("# The campaign\n\n" + "\n".join(head + rows) + "\n")
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{PAGE.name}: there is no {BEGIN.strip()} with its end")
    PAGE.write_text("".join([before, begin, "\n".join(head), "\n", end, after]))
