# SPDX-License-Identifier: Apache-2.0
"""How benchmarks/peers/run measures: each peer in a process of its own for each task, all of them by turns."""

import ctypes
import json
import mmap
import os
import select
import signal
import statistics
import subprocess
import time

import data
import peers
from workers import counts

# "unit" is what is counted. "long" is how many times as long a turn takes. "as" is the task whose data and programs are used.
# "turns" is the fewest turns, for a disk that differs from turn to turn; each setting is tried three times there, too.
TASKS = {
    "jpeg_folder": {"title": "JPEG folder: decode, random resized crop 224", "unit": "images", "long": 2},
    "jpeg_folder_cold": {"title": "JPEG folder, cold", "unit": "images", "long": 2, "as": "jpeg_folder"},
    "tar_sequential": {"title": "Tar shards, in their order: bytes and labels", "unit": "files"},
    "tar_shuffled": {"title": "Tar shards, shuffled: bytes and labels", "unit": "files"},
    "records_cached": {"title": "Records of 12 kB, shuffled, page cache", "unit": "records"},
    "records_cold": {"title": "Records of 12 kB, shuffled, cold", "unit": "records", "turns": 9},
    "storage": {"title": "MLPerf Storage's ResNet-50: accelerators at 90 %", "unit": "accelerators"},
    "tokens": {"title": "Texts of 1 to 2,048 tokens, packed into batches", "unit": "tokens"},
    "slow_sample": {"title": "One sample in 500 takes 100 ms, the others 1 ms; 8 workers", "unit": "samples", "long": 4},
    "loop": {"title": "The loop alone: batches of one number", "unit": "batches"},
}
# Who has a part in which. WebDataset is for tar files; DALI has no reader for plain records; FFCV and LitData read their own
# formats, and FFCV compiles for seconds in each process, of which "storage" has many; Grain reads no tar files; of oneTBB
# only the pipeline is a peer.
PARTS = {
    "jpeg_folder": ["penstock", "torch", "spdl", "dali", "ffcv", "tf", "grain", "litdata"],
    "jpeg_folder_cold": ["penstock", "torch", "spdl", "dali", "ffcv", "tf", "grain", "litdata"],
    "tar_sequential": ["penstock", "spdl", "dali", "webdataset"],
    "tar_shuffled": ["penstock", "spdl", "dali", "webdataset"],
    "records_cached": ["penstock", "torch", "spdl", "ffcv", "tf", "grain", "litdata"],
    "records_cold": ["penstock", "torch", "ffcv", "tf", "grain", "litdata"],
    "storage": ["penstock", "torch", "tf", "grain"],
    "tokens": ["penstock", "torch", "spdl", "tf", "grain"],
    "slow_sample": ["penstock", "torch", "spdl", "dali", "tf", "grain", "tbb"],
    "loop": ["penstock", "torch", "spdl", "dali", "tf", "grain", "tbb"],
}  # fmt: skip
# What is dropped from the page cache before each turn of a cold task, in all formats.
COLD = {"jpeg_folder_cold": ("jpeg/train/*/*", "jpeg.beton", "jpeg.litdata/*"), "records_cold": ("records*", "records*/*")}
# MLPerf Storage: a batch of 400 samples, 0.224 s of computing for each, and the use that counts.
STORAGE = {"batches": 6, "compute": 0.224, "use": 0.9, "batch": 400, "limit": 14}


def own_settings(peer, task, cores):
    """penstock's and oneTBB's: the C++ programs take what they are given."""
    if peer == "tbb":
        threads = (8,) if task == "slow_sample" else (1, 2)
        return [{"threads": number, "depth": depth} for number in threads for depth in (8, 16, 32)]
    if task == "slow_sample":
        return [{"workers": 8, "depth": depth} for depth in (8, 16, 32)]
    if task == "loop":
        return [{"workers": 1, "depth": depth} for depth in (16, 64, 256)]
    if task == "storage":
        return [{"workers": 1}, {"workers": 1, "map": True}, {"workers": 2}]
    if task == "records_cached":
        return [{"workers": workers, "map": map} for workers in counts(cores) if workers <= cores
                for map in (False, True)]  # fmt: skip
    if task == "records_cold":
        blocks, many = {"block": 64, "window": 64, "ahead": 16}, max(8, 2 * cores)
        queues = [{"workers": cores, "queue": 64, "around": around, "ahead": 0} for around in (0, 128 << 10, 1 << 20)]
        return queues + [{"workers": cores, "ahead": 8}, {"workers": many, "ahead": 0}, {"workers": cores, **blocks},
                {"workers": cores, "map": True}, {"workers": many, "map": True}]  # fmt: skip
    if task == "jpeg_folder_cold":
        return [{"workers": cores, "ahead": 8}, {"workers": 2 * cores, "ahead": 0}, {"workers": 2 * cores, "ahead": 8},
                {"workers": cores, "queue": 64}, {"workers": cores, "queue": 16, "ahead": 8}]  # fmt: skip
    return [{"workers": workers} for workers in counts(cores)]


def worth_trying(task, settings, cores):
    """All of the settings. Of the cold JPEG folder a turn is a whole epoch, so those with few workers are left out."""
    if task != "jpeg_folder_cold":
        return settings
    return [one for one in settings if 2 * one.get("workers", one.get("threads", cores)) >= cores]


class Failed(Exception):
    pass


class Process:
    """A peer's program at one task. It waits while others have their turn."""

    def __init__(self, command, cores, log):
        self.log = open(log, "ab")
        self.process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            start_new_session=True, preexec_fn=lambda: os.sched_setaffinity(0, cores))  # fmt: skip

    def ask(self, timeout, **command):
        try:
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        except BrokenPipeError:
            ready = [None]
        line = self.process.stdout.readline() if ready else None
        if line is None:
            self.end()
            raise Failed(f"no answer in {timeout:.0f} s")
        if not line:
            raise Failed(f"the program has ended: see {self.log.name}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def end(self):
        """With the processes that it has started. May be called twice."""
        if self.log.closed:
            return
        self.process.stdin.close()
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.log.close()


class Contestant:
    """A peer at one task: its settings, its turns, and the row of the table that comes of them."""

    def __init__(self, task, peer, option, truth):
        self.task, self.peer, self.option, self.truth = task, peer, option, truth
        self.like = TASKS[task].get("as", task)  # what the programs do
        self.row = {"task": task, "peer": peer}
        self.turns, self.process, self.setting = [], None, None

    def tell(self, text):
        print(f"  {peers.PEERS[self.peer]['title']:20} {text}", flush=True)

    def attempt(self, step, *arguments):
        """Runs the step unless an earlier one has failed."""
        if "failed" in self.row or "missing" in self.row:
            return
        try:
            step(*arguments)
        except peers.Missing as missing:
            self.row["missing"] = str(missing)
            self.tell(str(missing))
        except Failed as failed:
            self.row["failed"] = str(failed)
            self.tell(f"failed: {failed}")
            self.end()

    def begin(self):
        command = self.option.places.command(self.peer, self.like, self.option.data)
        self.process = Process(command, self.option.cpus, self.option.log)

    def start(self):
        self.begin()
        if self.peer in peers.PROGRAMS:
            self.row["with"], self.settings = self.option.versions[self.peer], own_settings(self.peer, self.task, self.cores)
        else:
            about = self.process.ask(300, do="about", cores=self.cores)
            self.row["with"], self.settings = about["versions"], about["settings"]
        self.settings = worth_trying(self.task, self.settings, self.cores)

    @property
    def cores(self):
        return len(self.option.cpus)

    def once(self, setting, seconds):
        if self.task in COLD:
            self.process.end()
            self.begin()
            drop_from_cache(cold_files(self.option.data, self.task))
            answer = self.process.ask(120, do="epoch", setting=setting)
            self.process.end()  # What a process has mapped stays in memory, at the others' turns too.
            return answer
        if self.task == "storage":
            answer = self.process.ask(60, do="accelerators", setting=setting, number=self.cores, compute=0.0, batches=8)
            rate = sum(8 / taken for taken in answer["seconds"])
            return {"units": rate, "seconds": 1}
        # Longer where batches come late one behind the other, and then many at once.
        long = TASKS[self.task].get("long", 1)
        return self.process.ask(60, do="measure", setting=setting, warm=0.3, seconds=seconds * long)

    def search(self):
        """The setting with the highest rate; what fails with one may work with another."""
        best, why = 0, "there is no setting"
        tries = 3 if "turns" in TASKS[self.task] else 1
        for setting in self.settings:
            try:
                results = [self.once(setting, self.option.search_seconds) for _ in range(tries)]
            except Failed as failed:
                why = str(failed)
                if self.process.process.poll() is not None:
                    break
                continue
            rate = statistics.median(result["units"] / result["seconds"] for result in results)
            if rate > best:
                best, self.setting = rate, setting
        if not self.setting:
            raise Failed(why)
        self.row["setting"], self.best = self.setting, best
        self.tell(f"takes {self.setting}, the best of {len(self.settings)}")

    def check(self):
        """An epoch, of which each value counts."""
        if self.task == "storage":
            return
        if self.task in COLD:
            self.begin()  # Each turn has ended its own.
        answer = self.process.ask(300, do="epoch", setting=self.setting, check=True)
        if self.like == "jpeg_folder" and "mean" not in self.truth["jpeg_folder"]:  # penstock's: it is the first
            self.truth["jpeg_folder"].update(mean=answer["digest"]["mean"], variance=answer["digest"]["variance"])
        if why := data.wrong(self.like, answer["digest"], self.truth):
            raise Failed(f"it delivers something else: {why}")
        if self.task in COLD:
            self.process.end()

    def turn(self):
        if self.task == "storage":
            self.turns.append({"number": self.accelerators()})
        else:
            self.turns.append(self.once(self.setting, self.option.seconds))

    def keeps_up(self, number):
        more = {name: STORAGE[name] for name in ("batches", "compute")}
        answer = self.process.ask(120, do="accelerators", setting=self.setting, number=number, **more)
        uses = [STORAGE["compute"] * STORAGE["batches"] / seconds for seconds in answer["seconds"]]
        return sum(uses) / number >= STORAGE["use"]

    def accelerators(self):
        """How many keep up: between one that does and one that does not, beginning where the rate, or the turn before,
        lets expect it. Ends early where the processes take long to start."""
        guess = self.turns[-1]["number"] if self.turns else int(self.best * STORAGE["compute"] / STORAGE["use"])
        room = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 7 // 10
        most = max(1, room // (4 * STORAGE["batch"] * self.option.sizes["storage_bytes"]))
        least, above, began = 0, most + 1, time.monotonic()
        while above - least > max(1, above // 20) and (least == 0 or time.monotonic() - began < STORAGE["limit"]):
            guess = min(max(guess, least + 1), above - 1)
            if self.keeps_up(guess):
                least, guess = guess, guess + max(1, guess // 8)
            else:
                above, guess = guess, (least + guess) // 2
        return least

    def end(self):
        if self.process:
            self.process.end()

    def finish(self):
        if not self.turns or "failed" in self.row:
            return self.row
        self.row["repeat"] = len(self.turns)
        if self.task == "storage":
            self.row["rates"] = [turn["number"] for turn in self.turns]
        else:
            self.row["rates"] = [turn["units"] / turn["seconds"] for turn in self.turns]
            self.row["a_core"] = [turn["units"] / max(turn["cpu"], 1e-3) for turn in self.turns]
            self.row["first"] = [turn["first"] for turn in self.turns]
            self.row["memory"] = [turn["memory"] for turn in self.turns]
        return self.row


def cold_files(folder, task):
    return [path for pattern in COLD[task] for path in sorted(folder.glob(pattern)) if path.is_file()]


def cached_bytes(path):
    """Of this file, in the page cache."""
    size, page = path.stat().st_size, mmap.PAGESIZE
    if not size:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), size) as memory:
        pages = (ctypes.c_ubyte * ((size + page - 1) // page))()
        first = ctypes.c_ubyte.from_buffer(memory)  # Which must be gone before the mapping is.
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), pages)
        del first
    if failed:
        raise Failed(f"mincore: {os.strerror(ctypes.get_errno())}")
    return page * sum(byte & 1 for byte in pages)


def drop_from_cache(paths):
    """Drops these files from the page cache; Failed if some of them stay. Reads them first, so that the host of a virtual
    machine, which may keep some, has seen the files of each peer just before its turn."""
    for path in paths:
        file = os.open(path, os.O_RDONLY)
        while os.read(file, 1 << 20):
            pass
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
    cached, there = sum(map(cached_bytes, paths)), sum(path.stat().st_size for path in paths)
    if cached > there / 50:
        raise Failed(f"{100 * cached / there:.0f} % of the files stay in the page cache")


def run_task(task, names, option, truth):
    """The rows of these peers at this task."""
    print(f"\n{TASKS[task]['title']}", flush=True)
    began, all_of_it = time.monotonic(), [Contestant(task, peer, option, truth) for peer in names]
    try:
        for one in all_of_it:
            one.attempt(one.start)
            one.attempt(one.search)
            one.attempt(one.check)
        for turn in range(max(option.repeat, TASKS[task].get("turns", 0))):
            if turn and option.end and time.monotonic() > option.end:
                break
            for one in all_of_it[turn % len(all_of_it) :] + all_of_it[: turn % len(all_of_it)]:
                one.attempt(one.turn)
    finally:
        for one in all_of_it:
            one.end()
    rows = [one.finish() for one in all_of_it]
    for one, row in zip(all_of_it, rows):
        if "rates" in row:
            middle = sorted(row["rates"])[len(row["rates"]) // 2]
            one.tell(f"{middle:14,.0f} {TASKS[task]['unit']}{'' if task == 'storage' else '/s'}")
    print(f"  {time.monotonic() - began:.0f} s", flush=True)
    return rows
