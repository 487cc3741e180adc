#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""rules_test.py SCRIPTS: what scripts/doc_site/rules.py finds in a small project with one mistake of each kind."""

import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(sys.argv[1]).resolve() / "doc_site"))
import rules  # noqa: E402

LICENCE = "// SPDX-License-Identifier" + ": Apache-2.0\n"
FILES = {
    "src/emulation/functions.def": LICENCE + "//\n//   blocking   may block\n\nFUNCTION(cudaWait, blocking | unsafe)\n"
                                             "FUNCTION(cudaAsk, 0)\n",
    "tests/emulation/wait_rules_test.cpp": LICENCE + "\n// The rules of waits: who waits. Functions:\n// cudaWait, cudaAs*.\n\n"
                                           '// CUDA: "..."\nTEST_CASE("a wait \\"waits\\"",\n          "[rules][wait]") {\n}\n',
    "tests/emulation/other_test.cpp": LICENCE + "\n// Others.\n\n"
                                      '// Why. A GPU may wait\n// longer.\nTEST_CASE("a wait "\n          "ends", "[emulation][wait][looser]") {\n}\n\n'
                                      'TEST_CASE("a test of the emulation", "[emulation]") {\n}\n\n'
                                      '// CUDA says so.\nTEST_CASE("a wait begins", "[emulation][wait][held]") {\n}\n',
    "tests/emulation/absent_functions.txt": "# SPDX\n\nNothing is launched.\n    cudaLaunch cudaStart\n\nNothing asks.\n    cudaAsk\n",
    "tests/emulation/races/some.cpp": '    {"seen", seen},\n    {"hidden",\n     hidden,\n     "It is "\n     "dark."},\n    {"also_seen",\n     also_seen},\n',
    "docs/none": "",
}  # fmt: skip


def require(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def change(path, old, new):
    file = rules.ROOT / path
    text = file.read_text()
    require(old in text, f"{path} has no {old}")
    file.write_text(text.replace(old, new))


def expect(words, path=None, old="", new="", header=None):
    """That the change is a problem. It is taken back."""
    before = (rules.ROOT / path).read_text() if path else None
    if path:
        change(path, old, new)
    problems = rules.check(header)
    if path:
        (rules.ROOT / path).write_text(before)
    require(any(words in problem for problem in problems), f"{problems}, and not {words}")


with tempfile.TemporaryDirectory() as folder:
    rules.ROOT = pathlib.Path(folder)
    for name, text in FILES.items():
        (rules.ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (rules.ROOT / name).write_text(text)
    require(rules.check() == [f"{rules.PAGE} is not what the tests say: scripts/doc_site/rules.py writes it"], "no page")
    require(rules.main([]) == 0 and rules.check() == [], "a page that was just written")
    page = (rules.ROOT / rules.PAGE).read_text()
    for row in ['| A wait "waits". | held | yes | `wait_rules_test.cpp` |',
                "| A wait ends. A GPU may wait longer. | looser |  | `other_test.cpp` |",
                "| A wait begins. | held |  | `other_test.cpp` |",
                "| Nothing is launched. | absent | `cudaLaunch`, `cudaStart` |",
                "| held | " + rules.VERDICTS["held"] + " | 2 |",
                "3 correct programs", "3 racy ones", "2 of them are", "| `hidden` | It is dark. |",
                "| `cudaWait` | blocking, unsafe | [waits](#waits) |", "| `cudaAsk` |  | [waits](#waits) |"]:  # fmt: skip
        require(row in page, f"{row} is not in\n{page}")
    for word in ["a test of the emulation", "Nothing asks"]:
        require(word not in page, f"{word} is in\n{page}")

    other, first = "tests/emulation/other_test.cpp", "tests/emulation/wait_rules_test.cpp"
    expect("is not what the tests say", other, '"ends"', '"never ends"')
    expect("is not what the tests say", "tests/emulation/races/some.cpp", '"dark."', '"darker."')
    expect("not one verdict", other, "[looser]", "[looser][stricter]")
    expect("no tag of a section", other, "[wait][looser]", "[looser]")
    expect("no sentence above it", other, "A GPU may", "One may")
    expect("the tags are not", first, "[rules][wait]", "[rules]")
    expect('does not begin with "The rules of"', first, "The rules of waits", "On waits")
    expect("two tests have one name", other, "a wait begins", "a wait \\\"waits\\\"")
    expect("no section is about cudaAsk", first, ", cudaAs*", "")
    expect("no function is called cudaNone*", first, "cudaAs*", "cudaAs*, cudaNone*")
    expect("absent_functions.txt: twice: cudaStart", "tests/emulation/absent_functions.txt", "cudaAsk", "cudaStart")
    header = rules.ROOT / "cuda_runtime_api.h"
    header.write_text("extern cudaError_t CUDARTAPI cudaWait_v2(void);\n/* CUDARTAPI cudaOld(void) */\n"
                      "extern cudaError_t CUDARTAPI cudaNew(int);\ncudaError_t CUDARTAPI cudaStart(int);")  # fmt: skip
    expect("declares cudaNew", header=header)
print("every mistake is found")
