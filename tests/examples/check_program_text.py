#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs that a page shows, below the line <!-- program -->, are what is compiled and tested, to the letter.

check_program_text.py PAGE.md PROGRAM
"""

import pathlib
import re
import sys

page, program = (pathlib.Path(argument).read_text() for argument in sys.argv[1:])
blocks = re.findall(r"^<!-- program -->\n```cpp\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
if not blocks:
    sys.exit(f"{sys.argv[1]} shows no program")
for block in blocks:
    if block not in program:
        sys.exit(f"{sys.argv[1]} shows a program that is not in {sys.argv[2]}:\n{block}")
print(f"{len(blocks)} program(s) found in {sys.argv[2]}")
