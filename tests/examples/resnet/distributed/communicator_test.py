#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes that meet, work, and are lost. Use: communicator_test.py RANK_PROGRAM CASE [--nccl]

With --nccl the program is over NCCL, with two ranks, each on a GPU of its own. NCCL sees neither that ranks make
different calls, nor on which rank a stream hangs; where all wait, nobody is named."""
import contextlib
import os
import random
import resource
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from ranks import NONE, gpus_or_skip

PROGRAM = sys.argv[1]
LONG = 60  # seconds that nothing here takes
NCCL = sys.argv[3:] == ["--nccl"]
MOST = 2 if NCCL else 4  # ranks of a job
SIZES = (2,) if NCCL else (2, 4, 8)
SHORT = 5 if NCCL else 2  # seconds to wait for a rank that does not come on; NCCL's start takes some


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


def sums():
    for size in SIZES:
        for rank in job(size, "sums", LONG):
            rank.ends(0, "done")


# ---- At the start


def missing():
    port = free_ports()
    here = [Rank(by_hand(rank, 4, port), "meet", 2) for rank in (0, 2)]
    for rank in here:
        rank.ends(3, "lost 1: ranks 1 and 3 of 4 did not come within 2 s", f"port {port}")
    Rank(by_hand(1, 4, port), "meet", 1).ends(3, "lost 0: rank 0 of 4 was not found within 1 s", f"{port}")

    # One that comes, and goes again, is missing too; another one may come for it.
    zero = Rank(by_hand(0, 2, port), "meet", 30)
    gone = Rank(by_hand(1, 2, port, "localhost"), "meet", 30)  # of another job
    time.sleep(0.3)
    gone.process.kill()
    gone.end()
    Rank(by_hand(1, 2, port), "meet", 30).ends(0, "done")
    zero.ends(0, "done")

    # Rank 0 comes last.
    one = Rank(by_hand(1, 2, port), "meet", 30)
    time.sleep(1)
    Rank(by_hand(0, 2, port), "meet", 30).ends(0, "done")
    one.ends(0, "done")


def message(kind, text):
    return b"penstok1" + struct.pack("=II", kind, len(text)) + text


def said_to(port, what):
    """What rank 0 answers, once it is there."""
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=LONG)
        except ConnectionRefusedError:
            time.sleep(0.01)
            continue
        connection.sendall(what)
        return connection


def strangers():
    port = free_ports()
    # Somebody has the first port, and another one answers at the second with something else.
    with socket.create_server(("127.0.0.1", port)), socket.create_server(("127.0.0.1", port + 1)) as other:
        def answer():
            with contextlib.suppress(OSError):
                while True:
                    other.accept()[0].sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        zero = Rank(by_hand(0, 3, port), "sums", LONG)
        hello = f"3 1 0 there 127.0.0.1:{port}".encode()
        kept = [said_to(port + 2, b"")]  # says nothing
        kept.append(said_to(port + 2, message(0, hello)[:20]))  # half of it
        kept.append(said_to(port + 2, b"penstok1" + struct.pack("=II", 0, 1 << 30)))  # very long
        for garbage in b"GET / HTTP/1.0\r\n\r\n", b"\0" * 4000, message(77, b""), message(0, b"\xff"):
            # It is not given the time that a rank has to say who it is.
            with said_to(port + 2, garbage) as connection, contextlib.suppress(ConnectionResetError):
                connection.settimeout(3)
                while connection.recv(4096):
                    pass
        for text, why in ((f"3 1 0 there 127.0.0.1:{port + 1}", b"it is of the job"),
                          (f"4 1 0 there 127.0.0.1:{port}", b"it is of 4 ranks"),
                          (f"3 3 0 there 127.0.0.1:{port}", b"there is no such rank"),
                          (f"3 0 0 there 127.0.0.1:{port}", b"there is no such rank"),
                          (f"3 1 9 there 127.0.0.1:{port}", b"there is no such rank"),
                          ("3 1", b"does not say who it is")):  # fmt: skip
            with said_to(port + 2, message(0, text.encode())) as connection:
                answer = connection.recv(4096)
                assert why in answer, (text, answer)
        # Who was welcome and left is not waited for; who is there is not pushed out.
        with said_to(port + 2, message(0, hello)) as connection:
            assert connection.recv(16)[8:12] == struct.pack("=I", 1)
            with said_to(port + 2, message(0, hello)) as second:
                assert b"this rank is here already" in second.recv(4096)
        others = [Rank(by_hand(rank, 3, port), "sums", LONG) for rank in (1, 2)]
        for rank in zero, *others:
            rank.ends(0, "done")
        assert len(kept) == 3


class Guests:
    """Connections of all ranks but 0 to a real rank 0, with what ranks say there to begin; all come at the same time."""

    def __init__(self, size, port, channels=2):
        self.size, self.port = size, port
        self.ready = selectors.DefaultSelector()
        self.refused, self.welcome, self.started = [], set(), set()
        for rank in range(1, size):
            for channel in range(channels):
                self.connect(rank, channel)

    def connect(self, rank, channel):
        connection = socket.socket()
        connection.setblocking(False)
        # Its end leaves no port behind that is taken for a minute: other tests look for free ones.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.connect_ex(("127.0.0.1", self.port))
        self.ready.register(connection, selectors.EVENT_WRITE, (rank, channel))

    def meet(self, zero):
        """Until all know that all are there, or somebody is sent away, or rank 0 has ended and no more is to be read."""
        while len(self.started) < self.size - 1 and not self.refused:
            ready = self.ready.select(0.1)
            if not ready and zero.process.poll() is not None:
                break
            for key, events in ready:
                self.speak(key) if events & selectors.EVENT_WRITE else self.hear(key)

    def speak(self, key):
        rank, channel = key.data
        self.ready.modify(key.fileobj, selectors.EVENT_READ, key.data)
        hello = f"{self.size} {rank} {channel} there 127.0.0.1:{self.port}"
        with contextlib.suppress(OSError):
            key.fileobj.sendall(message(0, hello.encode()))

    def hear(self, key):
        said = b""
        with contextlib.suppress(OSError):
            said = key.fileobj.recv(1 << 16)
        if not said:
            self.ready.unregister(key.fileobj)
            key.fileobj.close()
            if key.data not in self.welcome:
                self.refused.append(f"rank and channel {key.data}: pushed out")
        while said:
            kind, size = struct.unpack("=II", said[8:16])
            if kind == 1:
                self.welcome.add(key.data)
            elif kind == 3:
                self.started.add(key.data[0])
            elif kind in (2, 4):  # refused, missing
                self.refused.append(said[16 : 16 + size].decode())
            said = said[16 + size :]

    def close(self):
        for key in list(self.ready.get_map().values()):
            key.fileobj.close()
        self.ready.close()


def many():
    """1,024 ranks find each other, each at its first try, though a process may have 1,024 files open. (Rank 0 is
    real.) Where it may not have as many as it needs, it says so."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert most >= 4096, f"this test needs 4096 open files, and may have {most}: ulimit -Hn"
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, most))
    for files, good in ((1024, most), True), ((64, 64), False):
        size, port = 1024 if good else 64, free_ports()
        zero = Rank(by_hand(0, size, port), "meet", LONG if good else SHORT, files=files)
        said_to(port, b"").close()  # It is there.
        guests = Guests(size, port)
        begin = time.monotonic()
        guests.meet(zero)
        print(f"{size} ranks: {time.monotonic() - begin:.2f} s")
        if good:
            assert not guests.refused, (len(guests.refused), guests.refused[0])
            assert guests.started == set(range(1, size)), len(guests.started)
            guests.close()
            zero.ends(0, "done")
        else:
            zero.ends(3, "of 64 did not come within 2 s", "rank 0 cannot open more connections", "ulimit -n")
            guests.close()


def two_jobs():
    port = free_ports()
    leftover = Rank(by_hand(1, 2, port, "127.0.0.2"), "sums", 5)  # whose rank 0 is no more
    jobs = [Rank(by_hand(rank, 2, port, address), "sums", LONG)
            for rank in (1, 0) for address in ("127.0.0.1", "localhost")]  # fmt: skip
    for rank in jobs:
        rank.ends(0, "done")
    leftover.ends(3, "rank 0 of 2 was not found within 5 s", f'for the job "127.0.0.2:{port}"')


def launchers():
    """The same variables as launchers set for two ranks of one machine."""
    port = free_ports()
    # torchrun's agent listens at MASTER_PORT, and answers.
    with socket.create_server(("127.0.0.1", port)):
        ranks = [Rank(by_hand(rank, 2, port) | {"TORCHELASTIC_RUN_ID": "none"}, "sums", LONG) for rank in (0, 1)]
        for rank in ranks:
            rank.ends(0, "done")
    step = f"{os.getpid()}{time.time_ns()}"
    slurm = [{"SLURM_JOB_ID": step, "SLURM_STEP_ID": 0, "SLURM_PROCID": rank, "SLURM_LOCALID": rank,
              "SLURM_NODEID": 0, "SLURM_NTASKS": 2, "SLURM_STEP_NUM_TASKS": 2,
              "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_STEP_NODELIST": "nowhere[1-2]"} for rank in (0, 1)]  # fmt: skip
    open_mpi = [{"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_RANK": rank,
                 "OMPI_COMM_WORLD_LOCAL_SIZE": 2, "PMIX_NAMESPACE": "prterun-" + step} for rank in (0, 1)]  # fmt: skip
    hydra = [{"PMI_RANK": rank, "PMI_SIZE": 2, "MPI_LOCALRANKID": rank, "MPI_LOCALNRANKS": 2, "MASTER_PORT": port}
             for rank in (0, 1)]  # fmt: skip
    for variables in slurm, open_mpi, hydra:
        for rank in [Rank(each, "sums", LONG) for each in variables]:
            rank.ends(0, "done")
    Rank({}, "sums", LONG).ends(0, "done")  # alone
    Rank({"RANK": 0, "WORLD_SIZE": 2}, "sums", LONG).ends(1, "LOCAL_RANK is not set")
    Rank({"PMI_RANK": 1, "PMI_SIZE": 2, "MPI_LOCALRANKID": 0, "MPI_LOCALNRANKS": 1}, "sums", LONG).ends(
        1, "processes of one machine")  # fmt: skip


# ---- On the way


def lost(size, timeout, fault, who, others, *parts, first=3, what="steps"):
    """All others end with the name of the lost rank, in time. The lost one ends as `first` says."""
    size, who = min(size, MOST), min(who, MOST - 1)
    ranks = job(size, what, timeout, fault, who)
    for number, rank in enumerate(ranks):
        if number != who:
            rank.ends(others, f"lost {who}: rank {who} ", *parts)
    status, text = ranks[who].end()
    assert status == first, (fault, status, text)
    return text


def killed():
    for size, who in (2, 1), (4, 2):
        lost(size, LONG, "killed", who, 3, "it was killed, or it crashed", first=-signal.SIGKILL)
    lost(2, LONG, "exits", 1, 3, "ended without a word", first=0)
    lost(2, LONG, "killed", 1, 3, "it was killed, or it crashed", first=-signal.SIGKILL, what="replays")


def rank_0():
    lost(4, LONG, "killed", 0, 3, "it was killed, or it crashed", first=-signal.SIGKILL)
    lost(4, LONG, "throws", 0, 3, "failed: the data set is gone", first=1)
    lost(3, SHORT, "hangs", 0, 3, f"has not gone on for {SHORT} s", first=1)


def stopped():
    size, who = min(3, MOST), 1
    ranks = job(size, "steps", SHORT, "stopped", who)
    for number, rank in enumerate(ranks):
        if number != who:
            status, text = rank.end()
            # A rank that is stopped may keep NCCL's connections, which the others then wait for until they are ended.
            assert status in ((3, 1) if NCCL else (3,)), (status, text)
            assert f"lost 1: rank 1 of {size}" in text and f"has not been heard of for {SHORT} s" in text, text
    ranks[who].process.send_signal(signal.SIGCONT)
    ranks[who].ends(3, "lost 1")


def suspended():
    """The time in which the whole job is stopped does not count."""
    timeout = 2 * SHORT if NCCL else SHORT  # its start is within it
    ranks = job(min(3, MOST), "slow", timeout)
    for rank in ranks:
        assert rank.process.stdout.readline() == "under way\n", rank.end()
    for rank in ranks:
        rank.process.send_signal(signal.SIGSTOP)
    time.sleep(1.5 * timeout)
    for rank in ranks:
        assert rank.process.poll() is None, rank.end()
        rank.process.send_signal(signal.SIGCONT)
    for rank in ranks:
        rank.ends(0, "done")


def hangs():
    """A rank that hangs is named, and ended too."""
    waited = f"has not gone on for {SHORT} s"
    # NCCL's calls are counted when they are queued, of which some are ahead.
    text = lost(3, SHORT, "hangs", 1, 3, f"{waited}: it is at step {'' if NCCL else 4}", first=1)
    assert f"rank 1 ends, in the middle of a call: rank 1 of {min(3, MOST)}" in text, text
    if not NCCL:
        lost(2, SHORT, "stream_hangs", 1, 3, waited, first=1)
    for rank in job(2, "steps", SHORT, "stream_hangs", -2):
        rank.ends(1, f"all ranks have waited for each other for {SHORT} s, at step {'' if NCCL else 4}")
    lost(3, SHORT, "gather_hangs", 2, 3, f"{waited}: it is at step {'' if NCCL else 6}", first=1)


def throws():
    lost(4, LONG, "throws", 3, 3, "failed: the data set is gone", first=1)
    lost(2, LONG, "throws", 1, 3, "failed: the data set is gone", first=1, what="replays")
    # One that nobody catches where the communicator is.
    ranks = job(min(3, MOST), "unwinds", LONG, "throws", 1)
    ranks[1].ends(1, "failed: the data set is gone")
    for rank in [ranks[0], *ranks[2:]]:
        rank.ends(3, "lost 1: rank 1 failed: an exception ended it")
    if not NCCL:
        lost(3, LONG, "other_call", 2, 3, "another call than rank 0: broadcast of 4 bytes")


def leaves():
    for rank in job(min(3, MOST), "late", LONG):
        rank.ends(0, "done")
    # NCCL does not see that a rank has gone, which the watch tells after the time-out.
    ranks = job(min(3, MOST), "steps", SHORT if NCCL else LONG, "leaves", 1)
    ranks[1].ends(0, "done")
    for rank in [ranks[0], *ranks[2:]]:
        rank.ends(3, "lost 1: rank 1 ")


CASES = (sums, missing, strangers, many, two_jobs, launchers, killed, rank_0, stopped, suspended, hangs, throws, leaves)
if NCCL:
    gpus_or_skip(MOST)
begin = time.monotonic()
{case.__name__: case for case in CASES}[sys.argv[2]]()
print(f"{sys.argv[2]}: {time.monotonic() - begin:.1f} s")
