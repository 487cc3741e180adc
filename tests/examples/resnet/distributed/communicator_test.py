#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks as processes that work, and are lost. Use: communicator_test.py RANK_PROGRAM CASE [--nccl]

With --nccl the program is over NCCL, with two ranks, each on a GPU of its own. NCCL sees neither that ranks make
different calls, nor on which rank a stream hangs; where all wait, nobody is named."""
import signal
import sys
import time

from rank_process import LONG, job, run_case
from ranks import gpus_or_skip

NCCL = sys.argv[3:] == ["--nccl"]
MOST = 2 if NCCL else 4  # ranks of a job
SIZES = (2,) if NCCL else (2, 4, 8)
SHORT = 5 if NCCL else 2  # seconds to wait for a rank that does not come on; NCCL's start takes some


def sums():
    for size in SIZES:
        for rank in job(size, "sums", LONG):
            rank.ends(0, "done")


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


if NCCL:
    gpus_or_skip(MOST)
run_case((sums, killed, rank_0, stopped, suspended, hangs, throws, leaves))
