#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills runs of several processes, and resumes them with other workers, depths, schedules and ranks.

A run is four epochs over one data set. Its ranks are processes that stay in step, as ranks that train
together do. After each batch all of them stand at the same State, which rank 0 saves; then, at a
random batch, some of them may go on by one more batch, and all are killed (SIGKILL). The next
processes go on at the saved State: in the middle of an epoch with the same world size and batch size,
and where another is refused; at its edge with any. In the end each epoch must have delivered each
sample exactly once. (A batch that was delivered and not saved is delivered again: what is on record
behind the State that a run goes on at is void.)

Use: resume_test.py RANK_PROGRAM SEED...
"""
import collections
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile

SAMPLES = 360  # divides by every world size, so no rank is padded
EPOCHS = 4
WORLD_SIZES = [1, 2, 3, 4]
BATCH_SIZES = [5, 8, 13]
SCHEDULES = ["eager", "lazy", "random"]


class Failure(Exception):
    pass


def require(condition, what):
    if not condition:
        raise Failure(what)


def position(state):
    """(epoch, batch) of a State's text."""
    return tuple(int(number) for number in re.search(r"epoch=(\d+) batch=(\d+) ", state).groups())


class Ranks:
    """The processes of one run, from a saved State, or the beginning, to their death."""

    def __init__(self, test, number):
        self.records = []
        self.processes = []
        random_ = test.random
        for rank in range(test.world_size):
            record = test.folder / f"record_{number}_{rank}"
            self.records.append(record)
            self.processes.append(test.start(
                rank, test.world_size, test.batch_size, record, workers=random_.randrange(4),
                host_depth=random_.choice([0, 1, 2, 7]), device_depth=random_.randrange(1, 4)))

    def line(self, rank):
        line = self.processes[rank].stdout.readline().rstrip("\n")
        require(line, f"rank {rank} died")
        return line

    def tell(self, rank, command):
        self.processes[rank].stdin.write(command + "\n")
        self.processes[rank].stdin.flush()

    def step(self):
        """The State at which all ranks stand after their next batch, saved; or "end"."""
        lines = {self.line(rank) for rank in range(len(self.processes))}
        require(len(lines) == 1, f"ranks that are in step have one state, not {lines}")
        state = lines.pop()
        if state != "end":
            self.tell(0, "save")
            require(self.line(0) == "saved", "rank 0 saves")
        return state

    def go(self):
        for rank in range(len(self.processes)):
            self.tell(rank, "go")

    def die(self, random_):
        """Some have delivered one batch more, some are in the middle of it, some wait; then the end."""
        for rank in range(len(self.processes)):
            if random_.random() < 0.5:
                self.tell(rank, "go")
                if random_.random() < 0.5:
                    self.line(rank)
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
        for process in self.processes:
            process.communicate()
            require(process.returncode in (-signal.SIGKILL, 0), "a rank was killed, or through")

    def close(self):
        for process in self.processes:
            process.kill()
            process.communicate()


class Test:
    def __init__(self, program, seed, folder):
        self.program = program
        self.seed = seed
        self.random = random.Random(seed)
        self.folder = pathlib.Path(folder)
        self.state_file = self.folder / "state"
        self.delivered = collections.defaultdict(list)  # (epoch, batch): samples, of all ranks
        self.runs = 0
        self.edges = 0
        self.refusals = 0
        self.choose_ranks()

    def choose_ranks(self):
        self.world_size = self.random.choice(WORLD_SIZES)
        self.batch_size = self.random.choice(BATCH_SIZES)

    def start(self, rank, world_size, batch_size, record, samples=SAMPLES, seed=None, workers=1,
              host_depth=0, device_depth=2):
        options = dict(rank=rank, world_size=world_size, batch_size=batch_size, samples=samples,
                       seed=self.seed if seed is None else seed, workers=workers,
                       host_depth=host_depth, device_depth=device_depth, epochs=EPOCHS,
                       record=record, save=self.state_file)
        if self.state_file.exists():
            options["restore"] = self.state_file
        schedule = f"schedule={self.random.choice(SCHEDULES)},seed={self.random.randrange(1000)}"
        return subprocess.Popen([self.program, *(f"{key}={value}" for key, value in options.items())],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                env={**os.environ, "PENSTOCK_EMULATION": schedule})

    def require_refusal(self, why, **changes):
        options = dict(rank=0, world_size=self.world_size, batch_size=self.batch_size,
                       record=self.folder / "void")
        process = self.start(**{**options, **changes})
        said = process.communicate()[0]
        require(process.returncode == 3 and why in said, f"{changes} is refused for {why}: {said}")
        self.refusals += 1

    def try_what_does_not_fit(self, middle):
        self.require_refusal("of another run: seed", seed=self.seed + 1)
        self.require_refusal("of another run: samples", samples=SAMPLES + 12)
        if middle:
            self.require_refusal("in the middle of an epoch", world_size=self.world_size + 1)
            self.require_refusal("in the middle of an epoch", batch_size=self.batch_size + 1)

    def run_until_killed(self):
        """One life of all ranks; True: the run came to its end."""
        ranks = Ranks(self, self.runs)
        self.runs += 1
        to_the_edge = self.random.random() < 0.3
        steps = 10**6 if to_the_edge else self.random.randrange(1, 12)
        state = None
        try:
            while True:
                said = ranks.step()
                if said == "end":
                    break
                state = said
                steps -= 1
                if steps <= 0 or (to_the_edge and position(state)[1] == 0):
                    ranks.die(self.random)
                    break
                ranks.go()
        finally:
            ranks.close()
        self.read_records(ranks.records, (EPOCHS, 0) if said == "end" else position(state))
        return said == "end"

    def read_records(self, records, end):
        for record in records:
            for line in record.read_text().splitlines() if record.exists() else []:
                epoch, batch, *samples = map(int, line.split())
                if (epoch, batch) < end:
                    self.delivered[epoch, batch].append(samples)

    def run(self):
        while not self.run_until_killed():
            middle = position(self.state_file.read_text())[1] != 0
            if self.random.random() < 0.5:
                self.try_what_does_not_fit(middle)
            if not middle:
                self.edges += 1
                self.choose_ranks()
        for epoch in range(EPOCHS):
            counts = collections.Counter(
                sample for (e, _), batches in self.delivered.items() if e == epoch
                for batch in batches for sample in batch)
            require(counts == collections.Counter(range(SAMPLES)),
                    f"epoch {epoch} delivers each sample once: {counts - collections.Counter(range(SAMPLES))} "
                    f"too many, {collections.Counter(range(SAMPLES)) - counts} too few")


def main():
    program, *seeds = sys.argv[1:]
    require(seeds, "give seeds")
    failed = 0
    for seed in map(int, seeds):
        with tempfile.TemporaryDirectory(prefix="penstock_") as folder:
            test = Test(program, seed, folder)
            try:
                test.run()
                said = "exact"
            except Failure as failure:
                said = f"FAILED: {failure}"
                failed += 1
        print(f"seed {seed}: {test.runs} runs, {test.edges} resumed at an epoch's edge, "
              f"{test.refusals} states refused: {said}", flush=True)
    return 1 if failed else 0


sys.exit(main())
