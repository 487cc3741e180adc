#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes that meet, on one machine, among strangers. Use: rendezvous_test.py RANK_PROGRAM CASE"""
import contextlib
import os
import pathlib
import resource
import selectors
import socket
import struct
import tempfile
import threading
import time

from rank_process import LONG, Rank, by_hand, free_ports, run_case
from wire import (CHALLENGE, HELLO, KINDS, MISSING, PROOF, PROOF_SIZE, REFUSED, START, UNPROVEN, WELCOME, all_from, greeted,
                  header, introduced, message, proof, said_to)  # fmt: skip

SHORT = 2  # seconds to wait for a rank that does not come


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
        claim = f"3 1 0 there 127.0.0.1:{port}".encode()
        kept = [said_to(port + 2, b"")]  # says nothing
        kept.append(said_to(port + 2, message(HELLO, bytes(32))[:20]))  # half of it
        for garbage in (b"GET / HTTP/1.0\r\n\r\n", b"\0" * 4000, message(KINDS, b""), message(HELLO, b"\xff"),
                        message(PROOF, bytes(64)), message(WELCOME, bytes(32)), header(HELLO, 1025)):  # fmt: skip
            # It is not given the time that a rank has to prove who it is.
            with said_to(port + 2, garbage) as connection:
                connection.settimeout(3)
                assert all_from(connection) == b"", garbage
        for text, why in ((f"3 1 0 there 127.0.0.1:{port + 1}", b"it is of another job"),
                          (f"4 1 0 there 127.0.0.1:{port}", b"it is of 4 ranks"),
                          (f"3 3 0 there 127.0.0.1:{port}", b"there is no such rank"),
                          (f"3 0 0 there 127.0.0.1:{port}", b"there is no such rank"),
                          (f"3 1 9 there 127.0.0.1:{port}", b"there is no such rank"),
                          ("3 1", b"does not say who it is")):  # fmt: skip
            connection, kind, answer = introduced(port + 2, text.encode())
            connection.close()
            # Where there is no secret, anybody may ask: the answer has the job's name only from who asked.
            assert kind == REFUSED and why in answer and f"127.0.0.1:{port}\"".encode() not in answer, (text, answer)
        # Who was welcome and left is not waited for; who is there is not pushed out.
        with introduced(port + 2, claim)[0]:
            second, kind, answer = introduced(port + 2, claim)
            second.close()
            assert kind == REFUSED and b"this rank is here already" in answer, answer
        others = [Rank(by_hand(rank, 3, port), "sums", LONG) for rank in (1, 2)]
        for rank in zero, *others:
            rank.ends(0, "done")
        assert len(kept) == 2


class Guests:
    """Connections of all ranks but 0 to a real rank 0, with what ranks say there to begin; all come at the same time."""

    def __init__(self, size, port, channels=2):
        self.size, self.port, self.nonce = size, port, os.urandom(32)
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
        self.ready.modify(key.fileobj, selectors.EVENT_READ, key.data)
        with contextlib.suppress(OSError):
            key.fileobj.sendall(message(HELLO, self.nonce))

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
            if kind == CHALLENGE:
                rank, channel = key.data
                claim = f"{self.size} {rank} {channel} there 127.0.0.1:{self.port}".encode()
                own = proof(b"", b"rank", self.nonce + said[16 + PROOF_SIZE : 16 + size], claim)
                key.fileobj.sendall(message(PROOF, own + claim))
            elif kind == WELCOME:
                self.welcome.add(key.data)
            elif kind == START:
                self.started.add(key.data[0])
            elif kind in (REFUSED, MISSING):
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


# ---- The job's secret


def with_secret(rank, size, port, secret):
    return by_hand(rank, size, port) | {"PENSTOCK_JOB_SECRET": secret}


def secret():
    ours, others = os.urandom(16).hex(), os.urandom(16).hex()
    port = free_ports()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "secret")
        path.write_text(ours + "\n")
        in_file = by_hand(1, 3, port) | {"PENSTOCK_JOB_SECRET_FILE": path}
        for mode in 0o640, 0o604, 0o620, 0o602:
            path.chmod(mode)
            text = Rank(in_file, "sums", LONG).ends(1, str(path), "others than its owner", "chmod 600")
            assert ours not in text, text
        path.chmod(0o400)
        text = Rank(in_file | {"PENSTOCK_JOB_SECRET": ours}, "sums", LONG).ends(1, "are both set")
        assert ours not in text, text
        ranks = [Rank(in_file, "sums", LONG)] + [Rank(with_secret(rank, 3, port, ours), "sums", LONG) for rank in (0, 2)]
        for rank in ranks:
            rank.ends(0, "done")
        path.chmod(0o600)
        path.write_text("\n")
        Rank(in_file, "sums", LONG).ends(1, str(path), "is empty")
    Rank(in_file, "sums", LONG).ends(1, str(path), "No such file")
    text = Rank(with_secret(1, 2, port, "brief"), "sums", LONG).ends(1, "has 5 characters", "openssl rand -hex 32")
    assert "brief" not in text, text

    # Ranks without the secret, or with that of another job, are not let in; nor do they let in one that has it.
    for first, second, says, told in ((ours, others, "has not this rank's secret", "is it another one there?"),
                                      (ours, "", "has a secret (PENSTOCK_JOB_SECRET), and this rank has none", "127.0.0.1"),
                                      ("", ours, "has not this rank's secret", "127.0.0.1")):  # fmt: skip
        ranks = [Rank(with_secret(rank, 2, port, own), "meet", 2) for rank, own in enumerate((first, second))]
        texts = [ranks[0].ends(3, "lost 1: rank 1 of 2 did not come within 2 s", told), ranks[1].ends(3, "lost 0", says)]
        assert not any(own in text for own in (ours, others) for text in texts), texts
    # The same secret is not the same job, nor the same number of ranks. Who has the secret is told which it is.
    zero = Rank(with_secret(0, 2, port, ours), "meet", 2)
    Rank(with_secret(1, 2, port, ours) | {"MASTER_ADDR": "localhost"}, "meet", 1).ends(3, "it is of another job")
    zero.ends(3, f'it is of another job, "localhost:{port}"')
    ranks = [Rank(with_secret(0, 2, port, ours), "meet", 2), Rank(with_secret(1, 3, port, ours), "meet", 2)]
    for rank in ranks:
        rank.ends(3, "it is of 3 ranks, this job has 2")


def refused():
    """What rank 0 says to who has not proved the secret, byte for byte."""
    secret, port = os.urandom(16).hex(), free_ports()
    zero = Rank(with_secret(0, 2, port, secret), "sums", LONG)
    key, claim = secret.encode(), f"2 1 0 there 127.0.0.1:{port}".encode()
    said_to(port, b"").close()
    forgeries = {
        "no secret": lambda nonces: proof(b"", b"rank", nonces, claim) + claim,
        "another secret": lambda nonces: proof(key[::-1], b"rank", nonces, claim) + claim,
        "another claim": lambda nonces: proof(key, b"rank", nonces, claim.replace(b" 1 0 ", b" 1 1 ")) + claim,
        "rank 0's own proof": lambda nonces: proof(key, b"rank 0", nonces),
        "rank 0's word": lambda nonces: proof(key, b"rank 0", nonces, claim) + claim,
        "nonces of another time": lambda nonces: proof(key, b"rank", nonces[:32] + os.urandom(32), claim) + claim,
        "half of a proof": lambda nonces: proof(key, b"rank", nonces, claim)[:16],
        "nothing": lambda nonces: b"",
    }
    for name, made in forgeries.items():
        connection, nonces = greeted(port, key)
        with connection:
            connection.sendall(message(PROOF, made(nonces)))
            answer = all_from(connection)
            assert answer == message(REFUSED, UNPROVEN), (name, answer)
    for name in f"{port}", socket.gethostname(), "127.0.0.1":
        assert name.encode() not in UNPROVEN
    Rank(with_secret(1, 2, port, secret), "sums", LONG).ends(0, "done")
    zero.ends(0, "done")


class Relay:
    """Stands between the ranks at the first port, so that rank 0 takes the second one, and keeps what both say."""

    def __init__(self, port):
        self.port = port
        self.said = []  # by connection: what the rank said, what rank 0 said
        self.server = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                rank, zero = self.server.accept()[0], said_to(self.port + 1, b"")
                both = (bytearray(), bytearray())
                self.said.append(both)
                for here, there, kept in ((rank, zero, both[0]), (zero, rank, both[1])):
                    threading.Thread(target=self.copy, args=(here, there, kept), daemon=True).start()

    @staticmethod
    def copy(here, there, kept):
        with contextlib.suppress(OSError):
            while data := here.recv(1 << 16):
                kept += data
                there.sendall(data)
            there.shutdown(socket.SHUT_WR)


def replay():
    """What two ranks said when they met gets nobody in later."""
    secret, port = os.urandom(16).hex(), free_ports()
    relay = Relay(port)
    zero = Rank(with_secret(0, 2, port, secret), "meet", LONG)
    Rank(with_secret(1, 2, port, secret), "meet", LONG).ends(0, "done")
    zero.ends(0, "done")
    assert len(relay.said) >= 2
    of_rank, of_zero = (bytes(side) for side in relay.said[0])
    assert message(WELCOME, b"")[:12] in of_zero, of_zero  # The recording is of a meeting.

    # To another rank 0. The relay still has the first port.
    zero = Rank(with_secret(0, 2, port, secret), "meet", LONG)
    with said_to(port + 1, of_rank) as connection:
        answer = all_from(connection)
    hello, rest = of_rank[: 16 + 32], of_rank[16 + 32 :]
    with said_to(port + 1, hello) as connection:  # message by message
        challenge = connection.recv(4096)
        connection.sendall(rest[: 16 + struct.unpack("=I", rest[12:16])[0]])
        answer_by_turns = all_from(connection)
    assert challenge[:12] == message(CHALLENGE, b"")[:12] and challenge != of_zero[: len(challenge)], challenge
    assert answer_by_turns == message(REFUSED, UNPROVEN), answer_by_turns
    assert message(WELCOME, b"")[:12] not in answer, answer
    Rank(with_secret(1, 2, port, secret), "meet", LONG).ends(0, "done")
    zero.ends(0, "done")

    # To another rank: it says hello, and no more.
    port, said = free_ports(), []
    with socket.create_server(("127.0.0.1", port)) as server:
        rank = Rank(with_secret(1, 2, port, secret), "meet", 1)
        with server.accept()[0] as connection:
            connection.sendall(of_zero)
            said.append(all_from(connection))
        server.close()
        rank.ends(3, "lost 0", f"who answers at port {port} has not this rank's secret")
    assert len(said[0]) == 16 + 32 and said[0].startswith(header(HELLO, 32)), said


def flood():
    """Ranks meet while strangers fill rank 0 with connections, which it keeps few of, and none for long."""
    secret, port = os.urandom(16).hex(), free_ports()
    zero = Rank(with_secret(0, 3, port, secret), "sums", LONG)
    said_to(port, b"").close()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, most))
    before = len(os.listdir(f"/proc/{zero.process.pid}/fd"))
    # Of 700 that say nothing or half a hello, 256 and as many as the ranks need may be there.
    silent = [said_to(port, header(HELLO, 1024) + bytes(1023) if i % 2 else b"") for i in range(700)]
    time.sleep(0.5)
    there = len(os.listdir(f"/proc/{zero.process.pid}/fd")) - before
    assert 200 < there <= 256 + 4, there
    stop = threading.Event()

    def greet_on():
        while not stop.is_set():
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(message(HELLO, bytes(32)))
                connection.recv(4096)

    threads = [threading.Thread(target=greet_on) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        time.sleep(6)  # longer than a connection has to prove itself
        closed = [connection for connection in silent if all_from(connection) == b""]
        assert len(closed) == len(silent)
        late = [said_to(port, b"") for _ in range(700)]
        ranks = [Rank(with_secret(rank, 3, port, secret), "sums", LONG) for rank in (1, 2)]
        for rank in zero, *ranks:
            rank.ends(0, "done")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for connection in silent + late:
        connection.close()


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


run_case((missing, strangers, many, secret, refused, replay, flood, two_jobs, launchers))
