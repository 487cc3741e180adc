# SPDX-License-Identifier: Apache-2.0
"""What tests of several ranks share: processes of one job, on this machine."""

import contextlib
import ctypes
import os
import resource
import socket
import subprocess
import sys

LONG = 120  # seconds that nothing here takes
NONE = {name: value for name, value in os.environ.items()
        if not name.startswith(("SLURM_", "OMPI_", "PMI", "TORCHELASTIC_", "MASTER_", "PENSTOCK_JOB_SECRET")) and "RANK" not in name
        and name not in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "JOB_COMPLETION_INDEX")}  # fmt: skip


def free_ports():
    """The first of 17 ports that nobody has."""
    while True:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            if not 1024 < first < 65000:
                continue
            try:
                for port in range(first + 1, first + 17):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
                return first
            except OSError:
                continue


def gpus_or_skip(wanted):
    """Ends the program with status 77, a skipped test, where CUDA shows it fewer GPUs than that."""
    count = ctypes.c_int(0)
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        cuda.cuInit(0)
        cuda.cuDeviceGetCount(ctypes.byref(count))
    except OSError as error:
        print(error)
    if count.value < wanted:
        print(f"skipped: it needs {wanted} GPUs, one for each rank, and here are {count.value}")
        sys.exit(77)


class Job:
    """`size` ranks of the same command. A rank may have words of its own, another file for its error output, and a
    limit (resource.RLIMIT_...): by rank."""

    def __init__(self, size, command, own=None, errors=None, limits=None):
        port = free_ports()
        self.ranks = []
        for rank in range(size):
            words = [*command, *(own or {}).get(rank, [])]
            environment = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size,
                           "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}  # fmt: skip
            limit = (limits or {}).get(rank)
            self.ranks.append(
                subprocess.Popen([str(word) for word in words], text=True, stdout=subprocess.PIPE,
                                 stderr=(errors or {}).get(rank, subprocess.PIPE),
                                 preexec_fn=limit and (lambda what=limit: resource.setrlimit(what[0], (what[1], what[1]))),
                                 env=NONE | {name: str(value) for name, value in environment.items()}))  # fmt: skip

    def end(self, timeout=LONG):
        """(exit status, output, error output) of each rank. One that does not end is an orphan, and told."""
        ended, late = [], []
        for rank, process in enumerate(self.ranks):
            try:
                output, errors = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                late.append(rank)
                process.kill()
                output, errors = process.communicate()
            ended.append((process.returncode, output, errors))
        assert not late, f"ranks that do not end: {late}\n{ended}"
        return ended


def run(size, command, status=0, **more):
    """All ranks to their end, all with this status: what each wrote to its output, to its error output."""
    ended = Job(size, command, **more).end()
    for rank, (code, output, errors) in enumerate(ended):
        assert code == status, f"rank {rank}: exit status {code}, not {status}\n{output}{errors}"
    return [(output, errors) for _, output, errors in ended]
