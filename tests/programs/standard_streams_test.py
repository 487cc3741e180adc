# SPDX-License-Identifier: Apache-2.0
"""standard_streams_test.py NAME=PROGRAM...: what src/programs/standard_streams.hpp promises of each program.

A program is asked for --help, or, where it has none, is run as it is.
"""

import os
import resource
import subprocess
import sys
import tempfile

WITHOUT_OPTIONS = ("tokens", "cccl", "checkpoints", "readback", "graphs")


def run(name, program, **more):
    words = [] if name in WITHOUT_OPTIONS else ["--help"]
    return subprocess.run([os.path.abspath(program), *words], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                          timeout=120, **more)  # fmt: skip


def lost(name, program):
    """Nobody takes what it prints: status 1, and why."""
    with open("/dev/full", "w") as full:
        done = run(name, program, stdout=full)
    assert done.returncode == 1, (name, done)
    assert b": the standard output cannot be written" in done.stderr, (name, done)


def limited(name, program):
    """Beyond the limit on file sizes it is the same: no signal ends it."""
    with tempfile.NamedTemporaryFile() as file:
        done = run(name, program, stdout=file, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4, 4)))
    assert done.returncode == 1, (name, done)
    assert b": the standard output cannot be written" in done.stderr, (name, done)


def closed(name, program):
    """A standard output that is closed: what is printed is lost, too."""
    done = run(name, program, preexec_fn=lambda: os.close(1))
    assert done.returncode == 1, (name, done)
    assert b": the standard output cannot be written" in done.stderr, (name, done)


def taken(name, program):
    done = run(name, program, stdout=subprocess.PIPE)
    assert done.returncode == 0 and done.stdout, (name, done)


programs = [word.split("=", 1) for word in sys.argv[1:]]
assert programs
programs = [(name, os.path.abspath(program)) for name, program in programs]
with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    for name, program in programs:
        for check in (taken, lost, limited, closed):
            check(name, program)
        print(name)
