#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of trace::write_page in a real browser: what it shows, and what it does when it is used.

What is right is taken from the timelines themselves, which write_samples.cpp writes beside the pages,
and worked out here once more. Ends with 77 where there is no Chromium.

Use: page_test.py SAMPLES_PROGRAM [unittest's arguments]
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

from browser import Browser, find_browser
from page_case import BrowserTest
from page_content import Content, Damaged, Empty, Odd, Ranks  # noqa: F401, for unittest to find
from page_many import EVENTS, Many  # noqa: F401
from page_use import Looking, Moving, Tables  # noqa: F401


def main(program, *arguments):
    if find_browser() is None:
        print("skipped: no Chromium. Install Debian's chromium, or name a browser in CHROMIUM.")
        return 77
    with tempfile.TemporaryDirectory(prefix="penstock_page_") as folder:
        subprocess.run([program, folder, str(EVENTS)], check=True)
        with Browser() as browser:
            BrowserTest.browser, BrowserTest.folder = browser, pathlib.Path(folder)
            tests = unittest.main(argv=[__file__, *arguments], exit=False)
    return 0 if tests.result.wasSuccessful() else 1


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
