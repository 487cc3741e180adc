#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program that the README shows is the one that is compiled and tested, to the letter.

check_program_text.py README.md minimal.cu
"""

import pathlib
import re
import sys

readme, program = (pathlib.Path(argument).read_text() for argument in sys.argv[1:])
blocks = [block for block in re.findall(r"^```cpp\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
          if "int main()" in block and "<<<" in block]
if not blocks:
    sys.exit(f"{sys.argv[1]} shows no program with a main function and a kernel launch")
for block in blocks:
    if block not in program:
        sys.exit(f"{sys.argv[1]} shows a program that is not in {sys.argv[2]}:\n{block}")
print(f"{len(blocks)} program(s) found in {sys.argv[2]}")
