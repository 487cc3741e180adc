#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The programs that a page shows, below the line <!-- program -->, are what is compiled and tested, to the letter.

check_program_text.py PAGE.md PROGRAM..., each of which may be a folder of programs
"""

import pathlib
import re
import sys

page, *programs = (pathlib.Path(argument) for argument in sys.argv[1:])
files = [file for path in programs for file in (sorted(path.iterdir()) if path.is_dir() else [path])]
texts = [file.read_text() for file in files]
blocks = re.findall(r"^<!-- program -->\n```(?:cpp|python)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
where = ", ".join(sys.argv[2:])
if not blocks:
    sys.exit(f"{page} shows no program")
for block in blocks:
    if not any(block in text for text in texts):
        sys.exit(f"{page} shows a program that is not in {where}:\n{block}")
print(f"{len(blocks)} program(s) found in {where}")
