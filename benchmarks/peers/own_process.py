# SPDX-License-Identifier: Apache-2.0
"""Runs one of a peer's measurements in a process of its own."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile


def measure(words, seconds):
    """This script again, with `words` and --json behind its arguments: what it writes there, or {"failed": why}. It is ended,
    with its children, after `seconds`."""
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch, "result.json")
        child = subprocess.Popen([sys.executable, *sys.argv, *words, "--json", path], start_new_session=True,
                                 stdout=subprocess.DEVNULL)  # fmt: skip
        try:
            status = child.wait(max(seconds, 0))
        except BaseException as error:  # Ctrl-C and SIGTERM too: the session is not the terminal's.
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return {"failed": f"not done in {seconds:.4g} s (--limit)"}
        return json.loads(path.read_text()) if status == 0 else {"failed": f"exit status {status}"}
