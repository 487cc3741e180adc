# SPDX-License-Identifier: Apache-2.0
"""Runs test cases with a mutant, the cheapest and likeliest first, until one of them fails."""

import collections
import concurrent.futures
import dataclasses
import hashlib
import json
import math
import os
import threading
import time

from . import programs, report

# What a mutant meets, one after the other, so that what may stay alive is known early: the plain build and the machine
# with weak memory, ThreadSanitizer, which takes ten times as long, and the test cases that take longer than this.
_STEPS = ("the plain build, and weak memory", "ThreadSanitizer", "the long test cases")
LONG_SECONDS = 8
# A failure so much later than the test usually takes is looked at a second time.
LATE_SECONDS = 2
# Under ThreadSanitizer a test takes about so many times as long. The status of one that has not run there.
TSAN_FACTOR, UNKNOWN = 6, "unknown"
# The likeliest so many test cases run alone, and the others together while they take no longer than this.
ALONE, TOGETHER_SECONDS = 8, 4
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
    briefly: bool = False  # It met the first step only.

    @property
    def alive(self):
        return not self.killed_by


class Campaign:
    def __init__(self, sources, mutants, built, jobs, seeds, longest, deadline, say):
        self.mutants, self.programs, self.say, self.deadline = mutants, built, say, deadline
        self.jobs, self.longest, self.lock = jobs, longest, threading.Lock()
        self.daily = seeds == 1
        schedules = ["lazy", *(f"random,seed={seed}" for seed in range(1, seeds + 1))]
        self.configurations = [("plain", s) for s in ["eager", *schedules]] + [("tsan", s) for s in schedules]
        self.hashes = {source.name: hashlib.sha256(source.text.encode()).hexdigest() for source in sources}
        self.digests = programs.test_digests()
        self.verdicts = {}  # by key
        self.passed = {}  # key of one without a verdict -> {test's source and configuration: digest}: it lived through them
        self.outcomes = {}  # of the tests without a mutant
        self.hits = collections.defaultdict(set)  # (program, test case): mutants that it passes by, at least at times
        killers = report.read_killers()
        self.killers = {m.key: killers.get(report.digest_of(m)) for m in mutants}  # of an earlier campaign
        self.briefly = set()  # keys of mutants that meet the first step only
        self.long = set()  # (program, test case) that are run last
        self.kills = collections.Counter()
        # Under what a mutant was found alive, or a test case took its time.
        self.conditions = {"tree": programs.common_hash(), "configurations": [" ".join(c) for c in self.configurations],
                           "longest": longest}  # fmt: skip
        self.place = {**self.conditions, "processors": os.cpu_count()}
        self.sessions = []  # of earlier calls, by which the results came

    # ---- Without a mutant

    def check_without_mutant(self):
        """Runs every test without a mutant in every configuration of the plain build. Each must pass. Notes how long it takes and which
        mutants it reaches. Under ThreadSanitizer a test reaches the same ones, and has to pass before it may kill."""
        # CI runs each program every day under one preset, which need not be the plain one. Without a sanitizer a test takes the
        # least time, and what fails there fails under the sanitizer too.
        left_out = {"plain": (), "tsan": self.programs.left_to_shares("tsan") if self.daily else ()}
        cases = {(build, program): list(self.programs.test_cases(program, build))
                 for build in programs.PRESETS for program in self.programs.emulated}  # fmt: skip
        self._run_all([programs.Test(program, name, "plain", "weak memory", file) for program in programs.WEAK_MEMORY
                       for name, file in self.programs.test_cases(program, "plain")])  # fmt: skip
        self._run_all([programs.Test(programs.WAITS, "ending.waits", "plain", "eager", programs.WAITS_FILE)])
        self._run_all([programs.Test(programs.INSIDE, name, build, "lazy", programs.INSIDE_FILE)
                       for build in programs.PRESETS for name in self.programs.scenarios()])  # fmt: skip
        idle = set()  # Tests that pass by no mutant in the first configuration do so nowhere: they test other parts.
        for build, schedule in self.configurations:
            suffix = schedule.replace(",seed=", "_")
            tests = [programs.Test(program, name, build, schedule, file) for program in self.programs.emulated
                     if f"{program}.{suffix}" not in left_out[build]
                     for name, file in cases[build, program] if (program, name) not in idle]  # fmt: skip
            if build == "tsan":
                for test in tests:
                    plain = self.outcomes.get(dataclasses.replace(test, build="plain"))
                    if test not in self.outcomes and plain is not None:
                        seconds = 0.2 + TSAN_FACTOR * plain.seconds
                        self.outcomes[test] = programs.Outcome(UNKNOWN, seconds)
                continue
            self._run_all(tests)
            if not idle:
                idle = {(test.program, test.name) for test in tests if not self.outcomes[test].hits}
            self.say(f"{len(tests)} test cases pass without a mutant, {build} {schedule}")
        for test, outcome in self.outcomes.items():
            self.hits[test.program, test.name] |= outcome.hits
            if test.program == programs.INSIDE or (outcome.seconds > LONG_SECONDS and test.build == "plain"):
                self.long.add((test.program, test.name))

    def is_over(self):
        return self.deadline is not None and time.monotonic() >= self.deadline

    def _run_all(self, tests):
        def run(test):
            if test in self.outcomes:  # in an earlier call
                return
            if self.is_over():
                raise programs.OutOfTime(f"{len(self.outcomes)} test cases have run without a mutant so far")
            self._run_without_mutant(test)

        pool = concurrent.futures.ThreadPoolExecutor(self.jobs)
        try:
            for done in [pool.submit(run, test) for test in tests]:
                done.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _run_without_mutant(self, test):
        outcome = self.programs.run([test], 0, self.longest or 300, hits=True)
        if self.longest and outcome.seconds >= self.longest:
            return
        if outcome.status != "passed":
            raise programs.Failed(f'without a mutant, "{test.name}" ({test.program}, {test.configuration}) '
                                  f"fails: {outcome.status}. Mend that first.")  # fmt: skip
        if test.program == programs.INSIDE:
            reached = frozenset(m.number for m in self.mutants if m.file.startswith(programs.INSIDE_REACHES))
            outcome = dataclasses.replace(outcome, hits=reached)
        self.outcomes[test] = outcome

    # ---- With one

    def run(self, chosen, tell):
        """Calls tell(mutant, verdict) after each mutant that has no verdict yet."""
        for step, name in enumerate(_STEPS):
            left = [mutant for mutant in chosen if mutant.key not in self.verdicts]
            self.say(f"{len(left)} mutants meet {name}")
            pool = concurrent.futures.ThreadPoolExecutor(self.jobs)
            try:
                futures = {pool.submit(self._judge, mutant, step): mutant for mutant in left}
                for future in concurrent.futures.as_completed(futures):
                    mutant = futures[future]
                    if (verdict := future.result()) is not None:
                        self.verdicts[mutant.key] = verdict
                        tell(mutant, verdict)
            finally:
                pool.shutdown(cancel_futures=True)

    def _judge(self, mutant, step):
        """Returns None if there is no verdict yet, because the mutant survived this step or the time limit came first."""
        verdict = Verdict()
        passed = self.passed.setdefault(mutant.key, {})
        met = [test for test in self.outcomes if mutant.number in self.hits[test.program, test.name]
               and self._may_show(mutant, test)]  # fmt: skip
        verdict.reached = bool(met)
        tests = [test for test in met if passed.get(self._group(test)) != self.digests.get(test.file, "")
                 and (self._step(test) <= step or self._killed(mutant, test))]  # fmt: skip
        groups = {self._group(test): self.digests.get(test.file, "") for test in tests if self._step(test) <= step}
        # A test case that is in several programs runs in the first that passes by the mutant.
        tests = {(test.name, test.configuration): test for test in sorted(tests, key=self._last_programs_first)}
        tests = list(tests.values())
        while tests:
            together = self._together(mutant, tests, verdict)
            outcome = self._try(mutant, together, verdict)
            if outcome is not None and outcome.status != "passed" and len(together) > 1:
                # Each by itself, to name the test case that fails, and under its own limit of time.
                together, outcome = self._first_that_fails(mutant, together, verdict)
            if outcome is None:
                return None
            if outcome.status != "passed":
                (test,) = together
                if self.outcomes[test].status == UNKNOWN:
                    self._run_without_mutant(test)
                verdict.killed_by, verdict.configuration, verdict.how = test.name, test.configuration, outcome.status
                with self.lock:
                    self._count(mutant, verdict)
                return verdict
        passed.update(groups)
        verdict.briefly = mutant.key in self.briefly
        if step + 1 == len(_STEPS) or verdict.briefly:
            return verdict
        if groups:
            self.say(f"lived through {_STEPS[step]}: {mutant.number}  {mutant.key}")
        return None

    def _together(self, mutant, tests, verdict):
        """Takes the test cases out of `tests` that run next: the likeliest ones each in a process of its own, and then those of one
        program and configuration together, since starting a process takes longer than most of them."""
        first = min(tests, key=lambda t: self._rank(mutant, t))
        together, seconds = [first], self.outcomes[first].seconds
        if verdict.runs >= ALONE and first.program not in (programs.WAITS, programs.INSIDE):
            for test in tests:
                like = test.program == first.program and test.configuration == first.configuration and test != first
                if like and seconds + self.outcomes[test].seconds <= TOGETHER_SECONDS:
                    together.append(test)
                    seconds += self.outcomes[test].seconds
        for test in together:
            tests.remove(test)
        return together

    def _try(self, mutant, tests, verdict):
        """Runs the test cases in one process. Returns None if the time limit came first."""
        usual = sum(self.outcomes[test].seconds for test in tests)
        limit = max(programs.LEAST_LIMIT, programs.LIMIT_FACTOR * usual)
        left = limit if self.deadline is None else self.deadline - time.monotonic()
        if left < usual:
            return None
        outcome = self.programs.run(tests, mutant.number, min(limit, left))
        if outcome.status == "hang" and left < limit and outcome.seconds >= left:
            return None
        verdict.runs += len(tests)
        verdict.seconds += outcome.seconds
        if len(tests) == 1 and outcome.status not in ("passed", "hang") and outcome.seconds > usual + LATE_SECONDS:
            # A wait that was too short on a busy machine looks like this too.
            outcome = self.programs.run(tests, mutant.number, limit)
        return outcome

    def _first_that_fails(self, mutant, tests, verdict):
        """Returns the first test case that fails by itself, as a list, and its outcome. If none does, the outcome is the last one's."""
        for test in tests:
            outcome = self._try(mutant, [test], verdict)
            if outcome is None or outcome.status != "passed":
                break
        return [test], outcome

    def _step(self, test):
        """Returns the index in _STEPS of the step in which a test case runs."""
        return 2 if self._is_long(test) else int(test.build == "tsan")

    def _killed(self, mutant, test):
        """Says whether the test case killed this mutant in an earlier campaign."""
        return self.killers[mutant.key] == (test.name, test.configuration)

    def _is_long(self, test):
        return (test.program, test.name) in self.long

    def _group(self, test):
        """Returns the unit of test cases for which it is noted that a mutant survived them: a source of test cases in a program and a
        configuration. Long test cases are a unit of their own."""
        return f"{test.program} {test.file} {test.configuration}" + (" long" if self._is_long(test) else "")

    def _may_show(self, mutant, test):
        return mutant.kind not in _NEVER_PLAIN or test.build == "tsan" or test.program in programs.WEAK_MEMORY

    def _last_programs_first(self, test):
        return test.program in self.programs.emulated and -self.programs.emulated.index(test.program)

    def _count(self, mutant, verdict):
        self.kills[mutant.file, mutant.kind, verdict.killed_by, verdict.configuration] += 1
        self.kills[mutant.file, verdict.killed_by, verdict.configuration] += 1

    def _rank(self, mutant, test):
        """Returns a rank. Tests of a lower rank come first: the one that killed this mutant earlier, and then those that are likelier to
        fail, in relation to their time. Likely are tests that killed similar mutants, and the header's own tests."""
        if self._killed(mutant, test):
            return -math.inf
        header = mutant.file.rpartition("/")[2].removesuffix(".hpp")
        with self.lock:
            alike = self.kills[mutant.file, mutant.kind, test.name, test.configuration]
            near = self.kills[mutant.file, test.name, test.configuration]
        own = test.file.rpartition("/")[2].startswith(header)
        own += 10 * (mutant.kind == "memory order" and test.program in programs.WEAK_MEMORY)
        return -(0.1 + own + 0.5 * near + 2 * alike) / (0.03 + self.outcomes[test].seconds)

    # ---- Keeping results

    def end_session(self, seconds):
        if self.programs.emulated:  # It has built, and run.
            self.sessions.append({"seconds": round(seconds), "jobs": self.jobs})

    def save(self, path):
        """Saves all that a later call needs, here or on another machine. A mutant is identified by its key."""
        tests = [{**dataclasses.asdict(test), "digest": self.digests.get(test.file, ""), "seconds": outcome.seconds,
                  "hits": sorted(outcome.hits)} for test, outcome in list(self.outcomes.items())
                 if outcome.status != UNKNOWN]  # fmt: skip
        verdicts = [{"number": m.number, "key": m.key, "kind": m.kind, "file": m.file, "line": m.line,
                     "function": m.function, "source": m.source, "change": m.change, "hash": self.hashes[m.file],
                     **dataclasses.asdict(self.verdicts[m.key])}
                    for m in self.mutants if m.key in self.verdicts]  # fmt: skip
        found = {"verdicts": verdicts, "sessions": self.sessions, "conditions": self.conditions, "digests": self.digests,
                 "keys": [mutant.key for mutant in self.mutants],  # to their numbers, from 1
                 "passed": {key: dict(groups) for key, groups in list(self.passed.items()) if groups},
                 "place": self.place, "tests": tests}  # fmt: skip
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(found) + "\n")
        partial.rename(path)

    def resume(self, path):
        """Takes over the results of an earlier call: the kills in headers that have not changed; if only sources of tests have changed,
        the tests that the other mutants survived; and, if the machine is like this one, how the tests ran without a mutant."""
        if not path.exists():
            return
        found = json.loads(path.read_text())
        fields = [field.name for field in dataclasses.fields(Verdict)]
        known = {mutant.key: mutant for mutant in self.mutants}
        same = found["conditions"] == self.conditions
        for entry in found["verdicts"]:
            key, verdict = entry["key"], Verdict(**{name: entry[name] for name in fields if name in entry})
            if key not in known:
                continue
            if verdict.killed_by and self.hashes.get(entry["file"]) == entry["hash"]:
                self.verdicts[key] = verdict
                self._count(known[key], verdict)
            elif verdict.alive and same and found["digests"] == self.digests and (key in self.briefly or not verdict.briefly):
                self.verdicts.setdefault(key, verdict)
        if same:
            for key, groups in found["passed"].items():
                self.passed.setdefault(key, {}).update(groups)
        self.sessions += found["sessions"]
        if found["place"] == self.place:
            numbers = [known[key].number if key in known else 0 for key in found["keys"]]
            for test in found["tests"]:
                seconds, digest = test.pop("seconds"), test.pop("digest")
                hits = frozenset(numbers[number - 1] for number in test.pop("hits")) - {0}
                if digest == self.digests.get(test["file"], ""):
                    self.outcomes[programs.Test(**test)] = programs.Outcome("passed", seconds, hits)
