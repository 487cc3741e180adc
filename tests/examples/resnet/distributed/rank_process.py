# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes of the program that is the test's first argument (rank_program.cpp)."""

import contextlib
import random
import resource
import socket
import subprocess
import sys
import time

from ranks import NONE

PROGRAM = sys.argv[1]
LONG = 60  # seconds that nothing here takes


def free_ports():
    """The first of 18 ports that nobody has, below those that the system gives to connections."""
    while True:
        first = random.randrange(10000, 19900)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + 18):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


def by_hand(rank, size, port, address="127.0.0.1"):
    return {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size,
            "MASTER_ADDR": address, "MASTER_PORT": port}  # fmt: skip


class Rank:
    def __init__(self, variables, *arguments, files=None):
        """`files`: how many it may have open, unless it asks for more; and how many then."""
        environment = NONE | {name: str(value) for name, value in variables.items()}
        limit = files and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, files))
        self.process = subprocess.Popen([PROGRAM, *map(str, arguments)], env=environment, text=True, preexec_fn=limit,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        self.started = time.monotonic()

    def end(self, timeout=LONG):
        """Exit status and output. A rank that does not end is an orphan."""
        try:
            text = self.process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("it does not end: " + self.process.communicate()[0]) from None
        return self.process.returncode, text

    def ends(self, status, *parts):
        ended = self.end()
        assert ended[0] == status and all(part in ended[1] for part in parts), (ended, status, parts)
        return ended[1]


def job(size, *arguments, port=None):
    port = port or free_ports()
    return [Rank(by_hand(rank, size, port), *arguments) for rank in range(size)]


def run_case(cases):
    """Runs the one that is the test's second argument."""
    begin = time.monotonic()
    {case.__name__: case for case in cases}[sys.argv[2]]()
    print(f"{sys.argv[2]}: {time.monotonic() - begin:.1f} s")
