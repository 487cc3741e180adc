#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""help_test.py PROJECT: each script prints its help, also where nothing is installed that it needs

The PATH has what every Debian has, and Python. PyTorch's peers are left out: they are programs of PyTorch.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

COMMANDS = ["bash", "sh", "env", "python3", "basename", "cat", "cut", "date", "dirname", "getconf", "grep", "head", "nproc", "readlink",
            "sed", "sort", "tail", "tr", "uname"]  # fmt: skip

project = pathlib.Path(sys.argv[1]).resolve()
folders = ["scripts", "benchmarks/peers", "examples/resnet/train", "examples/resnet/infer"]
scripts = [path for folder in folders for path in sorted((project / folder).iterdir())
           if path.is_file() and os.access(path, os.X_OK) and path.read_bytes().startswith(b"#!")
           and "\nimport torch" not in path.read_text()]  # fmt: skip
wrong = []
with tempfile.TemporaryDirectory() as folder:
    for command in COMMANDS:
        os.symlink(sys.executable if command == "python3" else shutil.which(command), pathlib.Path(folder, command))
    for script in scripts:
        ended = subprocess.run([script, "--help"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                               env={"PATH": folder, "HOME": folder, "PYTHONDONTWRITEBYTECODE": "1"})  # fmt: skip
        if ended.returncode != 0 or script.name not in ended.stdout:
            wrong.append(f"{script.relative_to(project)} --help: exit status {ended.returncode}: {ended.stdout}{ended.stderr}")
if wrong or not scripts:
    sys.exit("\n".join(wrong) or "no scripts")
print(f"{len(scripts)} scripts print their help")
