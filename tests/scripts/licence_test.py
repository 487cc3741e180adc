#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""licence_test.py ROOT: every source and script of the project has the licence line among its first three lines. Data
(JSON, pictures, test inputs, recorded texts) and Markdown are without it."""

import pathlib
import sys

LINE = "SPDX-License-Identifier" + ": Apache-2.0"
FOLDERS = [".ci", "benchmarks", "cmake", "docs", "examples", "include", "packaging", "scripts", "src",
           "tests"]  # fmt: skip
SUFFIXES = {".c", ".cmake", ".cpp", ".css", ".cu", ".cuh", ".def", ".hpp", ".html", ".in", ".js", ".map", ".py", ".sbatch",
            ".sh", ".toml", ".yaml", ".yml"}  # fmt: skip


def is_source(path):
    if path.name == "CMakeLists.txt" or path.suffix in SUFFIXES:
        return True
    return path.suffix == "" and path.read_bytes().startswith(b"#!")  # a script


root = pathlib.Path(sys.argv[1]).resolve()
files = [path for folder in FOLDERS for path in (root / folder).rglob("*")
         if path.is_file() and not path.is_symlink() and "__pycache__" not in path.parts]  # fmt: skip
sources = [path for path in [root / "CMakeLists.txt", *files] if is_source(path)]
if len(sources) < 1000:
    sys.exit(f"FAILED: only {len(sources)} sources in {root}")
bare = [path for path in sources if not any(LINE in line for line in path.read_text().splitlines()[:3])]
for path in bare:
    print(f"{path.relative_to(root)}:1: no licence line ({LINE})")
if bare:
    sys.exit(f"FAILED: {len(bare)} of {len(sources)} files are without the licence line")
print(f"{len(sources)} files have the licence line")
