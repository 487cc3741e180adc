#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rung_diff_test.py RUNG_DIFF: a rung changes one thing, so that few of its lines differ from the rung that it changes;
and what counts as a line that differs."""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
script = pathlib.Path(sys.argv[1]).resolve()
spec = importlib.util.spec_from_file_location("rung_diff", script)
rung_diff = importlib.util.module_from_spec(spec)
spec.loader.exec_module(rung_diff)

MOST = 20  # lines that are taken away, and lines that are new
# These put one thing in the place of much else: the Prefetcher, a copy ahead, a context for each thread.
LARGE = {"T12": 24, "I5a": 32, "I5b": 40, "I8": 42}
FIRST = {"T0", "T15", "I1"}  # They change no other rung.
# One setting of the network; T8c and T7b have another value of one.
SETTINGS = {"T6": 1, "T7": 1, "T7b": 2, "T8": 1, "T8b": 1, "T8c": 2, "T9": 1, "T10": 1, "I4a": 1, "I4b": 1, "I4c": 1, "I4": 1}


def require(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def rungs():
    found = rung_diff.rungs()
    require(len(found) == 25 + 14, f"{len(found)} rungs")
    for number, path in found.items():
        after = rung_diff.description(path.read_text(), "after")
        require((after in found) != (number in FIRST), f"{number} comes after {after or 'nothing'}")
        if after:
            lines = rung_diff.differing(found[after], path)
            require(0 < lines <= LARGE.get(number, MOST), f"{lines} lines of {number} differ from {after}")
            require(number not in SETTINGS or lines == SETTINGS[number], f"{lines} lines of {number} differ, and it changes a setting")


RUNG = """// SPDX-License-Identifier: Apache-2.0

// {comment}

#include "{loop}"
{using}
namespace {{

void train(Run& run) {{
  first({arguments});
  {more}second();
}}

}}  // namespace

int main(int argc, char** argv) {{
  return resnet::run_rung({{.number = "{number}", .name = "{comment}", .settings = {{.batch = {batch}}}, .train = {train}}},
                          argc, argv);
}}
"""


def counted():
    """Made-up rungs: what differs counts, and comments, names and line breaks do not."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "in_turn.hpp").write_text("namespace resnet {\n\ninline void shared(Run& run) {\n  third();\n}\n\n}  // namespace resnet\n")

        def rung(name, comment="a", loop="run.hpp", using="", arguments="a, b", more="", batch=32, train="train", number="T1"):
            (folder / name).write_text(RUNG.format(**{key: value for key, value in locals().items() if key != "name"}))
            return folder / name

        first = rung("first.cpp")
        for other, lines in ((rung("1.cpp", comment="b", using="using resnet::Run;\n", number="T2", train="x"), 0),
                             (rung("2.cpp", arguments="a,\n        b"), 0), (rung("3.cpp", arguments="a, c"), 2),
                             (rung("4.cpp", more="new();\n  "), 1), (rung("5.cpp", batch=64), 2),
                             (rung("6.cpp", loop="in_turn.hpp"), 3)):  # fmt: skip
            found = rung_diff.differing(first, other)
            require(found == lines, f"{other.name}: {found} lines differ, not {lines}")


def shown():
    """The diff of a rung; the list; what is no rung."""
    def run(*words):
        done = subprocess.run([sys.executable, script, *words], text=True, capture_output=True)
        return done.returncode, done.stdout + done.stderr

    status, text = run("T9")
    require(status == 0 and "+format = Format::nhwc" in text and text.count("\n+") == 2, text)
    status, text = run()
    require(status == 0 and len(text.splitlines()) == 25 + 14 - len(FIRST), text)
    for words, why in ((["T99"], "no rung T99"), (["T0"], "T0 changes no other rung")):
        status, text = run(*words)
        require(status == 1 and why in text, text)


rungs()
counted()
shown()
