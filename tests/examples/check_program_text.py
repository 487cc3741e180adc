#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs that a page shows, below the line <!-- program -->, are what is compiled and tested, to the letter.

check_program_text.py PAGE.md PROGRAM, which may be a folder of programs
"""

import pathlib
import re
import sys

page, program = pathlib.Path(sys.argv[1]).read_text(), pathlib.Path(sys.argv[2])
programs = [path.read_text() for path in (sorted(program.iterdir()) if program.is_dir() else [program])]
blocks = re.findall(r"^<!-- program -->\n```cpp\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
if not blocks:
    sys.exit(f"{sys.argv[1]} shows no program")
for block in blocks:
    if not any(block in text for text in programs):
        sys.exit(f"{sys.argv[1]} shows a program that is not in {sys.argv[2]}:\n{block}")
print(f"{len(blocks)} program(s) found in {sys.argv[2]}")
