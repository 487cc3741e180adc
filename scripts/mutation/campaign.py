# SPDX-License-Identifier: Apache-2.0
"""Runs test cases against mutants, cheapest and likeliest first, until one of them notices."""

import collections
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import threading
import time

from . import programs

# Kinds that show as a wrong result or a hang, which the plain build finds in a tenth of the time.
_PLAIN_FIRST = {"bound", "equality", "notify", "stop", "unlock", "host wait"}
# Kinds that show on x86 by luck, if at all, but for ThreadSanitizer and the machine with weak memory.
_NEVER_PLAIN = {"memory order", "lock"}


@dataclasses.dataclass
class Verdict:
    killed_by: str = ""  # test case; empty: alive
    configuration: str = ""
    how: str = ""
    runs: int = 0  # test cases that ran
    seconds: float = 0
    reached: bool = True  # some test case passes by the mutant

    @property
    def alive(self):
        return not self.killed_by


class Campaign:
    def __init__(self, sources, mutants, built, jobs, seeds, longest, deadline, say):
        self.mutants, self.programs, self.say, self.deadline = mutants, built, say, deadline
        self.jobs, self.longest, self.lock = jobs, longest, threading.Lock()
        schedules = ["lazy", *(f"random,seed={seed}" for seed in range(1, seeds + 1))]
        self.configurations = [("tsan", s) for s in schedules] + [("plain", s) for s in [*schedules, "eager"]]
        self.hashes = {source.name: hashlib.sha256(source.text.encode()).hexdigest() for source in sources}
        self.verdicts = {}  # by key
        self.outcomes = {}  # of the tests without a mutant
        self.hits = collections.defaultdict(set)  # (program, test case): mutants that it passes by, at least at times
        self.kills = collections.Counter()
        # Under what a mutant was found alive, or a test case took its time.
        self.conditions = {"tree": programs.tree_hash(), "configurations": [" ".join(c) for c in self.configurations],
                           "longest": longest}  # fmt: skip
        self.place = {**self.conditions, "processors": os.cpu_count(), "jobs": jobs}
        self.sessions = []  # of earlier calls, by which the results came

    # ---- Without a mutant

    def check_without_mutant(self):
        """Every test must pass in every configuration; notes how long it takes and what it passes by."""
        weak = self.programs.test_names(programs.WEAK_MEMORY, "plain")
        self._run_all([programs.Test(programs.WEAK_MEMORY, name, "plain", "weak memory") for name in weak])
        names = {build: {(program, name) for program in self.programs.emulated
                         for name in self.programs.test_names(program, build)} for build in programs.PRESETS}  # fmt: skip
        first, *others = self.configurations
        self._run_all([programs.Test(*name, *first) for name in sorted(names[first[0]])])
        # Tests that pass by no mutant here do so nowhere: they test other parts.
        idle = {(t.program, t.name) for t, outcome in self.outcomes.items() if t.build == first[0] and not outcome.hits}
        self._run_all([programs.Test(*name, *c) for c in others for name in sorted(names[c[0]] - idle)])
        for test, outcome in self.outcomes.items():
            self.hits[test.program, test.name] |= outcome.hits

    def is_over(self):
        return self.deadline is not None and time.monotonic() >= self.deadline

    def _run_all(self, tests):
        def run(test):
            if test in self.outcomes:  # in an earlier call
                return
            if self.is_over():
                raise programs.OutOfTime(f"{len(self.outcomes)} test cases have run without a mutant so far")
            outcome = self.programs.run(test, 0, self.longest or 300, hits=True)
            if self.longest and outcome.seconds >= self.longest:
                return
            if outcome.status != "passed":
                raise programs.Failed(f'without a mutant, "{test.name}" ({test.program}, {test.configuration}) '
                                      f"fails: {outcome.status}. Mend that first.")  # fmt: skip
            self.outcomes[test] = outcome

        pool = concurrent.futures.ThreadPoolExecutor(self.jobs)
        try:
            for done in [pool.submit(run, test) for test in tests]:
                done.result()
        finally:
            pool.shutdown(cancel_futures=True)

    # ---- With one

    def run(self, chosen, report):
        """Calls report(mutant, verdict) after each mutant that has no verdict yet."""
        left = [mutant for mutant in chosen if mutant.key not in self.verdicts]
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            futures = {pool.submit(self._judge, mutant): mutant for mutant in left}
            for future in concurrent.futures.as_completed(futures):
                mutant = futures[future]
                if (verdict := future.result()) is not None:
                    self.verdicts[mutant.key] = verdict
                    report(mutant, verdict)

    def _judge(self, mutant):
        """None: the time limit came first."""
        verdict = Verdict()
        # A test case that is in several programs runs in the first that passes by the mutant.
        tests = {(test.name, test.configuration): test for test in sorted(self.outcomes, key=self._last_programs_first)
                 if mutant.number in self.hits[test.program, test.name] and self._may_show(mutant, test)}  # fmt: skip
        tests = list(tests.values())
        verdict.reached = bool(tests)
        while tests:
            test = min(tests, key=lambda t: self._rank(mutant, t))
            tests.remove(test)
            usual = self.outcomes[test].seconds
            limit = max(programs.LEAST_LIMIT, programs.LIMIT_FACTOR * usual)
            left = limit if self.deadline is None else self.deadline - time.monotonic()
            if left < usual:
                return None
            outcome = self.programs.run(test, mutant.number, min(limit, left))
            if outcome.status == "hang" and left < limit and outcome.seconds >= left:
                return None
            verdict.runs += 1
            verdict.seconds += outcome.seconds
            if outcome.status != "passed":
                verdict.killed_by, verdict.configuration, verdict.how = test.name, test.configuration, outcome.status
                with self.lock:
                    self.kills[mutant.file, mutant.kind, test] += 1
                    self.kills[mutant.file, test] += 1
                break
        return verdict

    def _may_show(self, mutant, test):
        return mutant.kind not in _NEVER_PLAIN or test.build == "tsan" or test.program == programs.WEAK_MEMORY

    def _last_programs_first(self, test):
        return test.program in self.programs.emulated and -self.programs.emulated.index(test.program)

    def _rank(self, mutant, test):
        """Lower comes first: what killed its like, the header's own tests in its best build, the quick ones."""
        with self.lock:
            alike, near = self.kills[mutant.file, mutant.kind, test], self.kills[mutant.file, test]
        best_build = (test.build == "plain") == (mutant.kind in _PLAIN_FIRST)
        return -alike, -near, not best_build, self.outcomes[test].seconds

    # ---- Keeping results

    def end_session(self, seconds):
        if self.programs.emulated:  # It has built, and run.
            self.sessions.append({"seconds": round(seconds), "jobs": self.jobs})

    def save(self, path):
        """All that a later call needs, here or on another machine. A mutant is known by its key."""
        tests = [{**dataclasses.asdict(test), "seconds": outcome.seconds, "hits": sorted(outcome.hits)}
                 for test, outcome in self.outcomes.items()]  # fmt: skip
        verdicts = [{"number": m.number, "key": m.key, "kind": m.kind, "file": m.file, "line": m.line,
                     "function": m.function, "source": m.source, "change": m.change, "hash": self.hashes[m.file],
                     "conditions": self.conditions, **dataclasses.asdict(self.verdicts[m.key])}
                    for m in self.mutants if m.key in self.verdicts]  # fmt: skip
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"verdicts": verdicts, "sessions": self.sessions, "place": self.place, "tests": tests}) + "\n")
        partial.rename(path)

    def resume(self, path, tests=True):
        """Takes over what an earlier call found out: kills in headers that are as they were then; mutants that stayed
        alive where nothing has changed since; and, if the machine is like this one, how the tests ran without any."""
        if not path.exists():
            return
        found = json.loads(path.read_text())
        fields = [field.name for field in dataclasses.fields(Verdict)]
        known = {mutant.key for mutant in self.mutants}
        for entry in found["verdicts"]:
            same = self.hashes.get(entry["file"]) == entry["hash"] if entry["killed_by"] else entry["conditions"] == self.conditions
            if entry["key"] in known and same and (entry["killed_by"] or entry["key"] not in self.verdicts):
                self.verdicts[entry["key"]] = Verdict(**{name: entry[name] for name in fields})
        self.sessions += found["sessions"]
        if tests and found["place"] == self.place:
            for test in found["tests"]:
                seconds, hits = test.pop("seconds"), frozenset(test.pop("hits"))
                self.outcomes[programs.Test(**test)] = programs.Outcome("passed", seconds, hits)
