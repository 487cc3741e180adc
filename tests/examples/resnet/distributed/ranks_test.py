#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ranks_test.py PROGRAM RANKS CASE: so many processes of ranks_test.cpp, all with this case; all have to succeed."""

import sys

from ranks import run

program, size, case = sys.argv[1:]
for output, errors in run(int(size), [program, f"[.{case}]"]):
    print(output + errors)
    assert "All tests passed" in output, output
