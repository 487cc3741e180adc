# SPDX-License-Identifier: Apache-2.0
"""
peer.py PEER TASK DATA: a Python program of benchmarks/peers/run. It reads commands, a line of JSON each, from its standard
input, and writes an answer to each, a line of JSON. beside/peer.hpp is the same for C++, and lists the commands.

with_PEER.py has of each peer:

    TASKS     task -> function(data, setting, epochs), a generator of its batches. A batch is, by the task,
              jpeg_folder       (pixels, labels): uint8, samples x 224 x 224 x 3 or samples x 3 x 224 x 224
              tar_*             (list of bytes, labels)
              records_*         uint8, samples x bytes of a record
              storage           the same
              tokens            (tokens of all texts, where each begins and the last ends)
              slow_sample, loop numbers
              The loader ends when the generator is closed.
    SETTINGS  function(task, cores): the settings to choose the best of
    PREPARE   task -> function(data), which writes the task's data in the peer's own format, if there is one
    versions()
"""

import gc
import importlib
import json
import os
import pathlib
import sys
import time
import traceback

ENDLESS = 1 << 32


class Data:
    """What benchmarks/peers/run has made."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        about = json.loads((self.folder / "data.json").read_text())
        self.sizes, self.truth = about["sizes"], about["truth"]
        self.jpegs = self.folder / "jpeg/train"
        self.shards = sorted(map(str, self.folder.glob("tar/*.tar")))
        self.records, self.storage = self.folder / "records.bin", self.folder / "storage.bin"
        self.tokens, self.offsets = self.folder / "tokens.bin", self.folder / "offsets.bin"


def units(task, batch):
    if task == "tokens":
        return batch[0].shape[0]
    if task == "jpeg_folder" or task.startswith("tar_"):
        return len(batch[1])
    return batch.shape[0] if hasattr(batch, "shape") else len(batch)


# ---- What was delivered ------------------------------------------------------------------------------


class Digest:
    """The same sums as in peer.hpp."""

    def __init__(self):
        self.samples = self.numbers = self.squares = self.bytes = self.values = 0
        self.labels, self.pixels, self.sum, self.sum_of_squares = {}, 0, 0.0, 0.0

    def add(self, task, batch):
        if task in ("slow_sample", "loop"):
            return self.add_numbers(batch)
        import numpy

        if task == "jpeg_folder":
            return self.add_pixels(numpy.asarray(batch[0]), batch[1])
        if task.startswith("tar_"):
            self.add_labels(batch[1])
            for data in batch[0]:
                self.bytes += len(data)
                self.numbers += int(numpy.frombuffer(data, numpy.uint8).sum(dtype=numpy.int64))
        elif task == "tokens":
            values, offsets = numpy.asarray(batch[0]), numpy.asarray(batch[1])
            self.samples += len(offsets) - 1
            self.squares += int(numpy.square(numpy.diff(offsets).astype(numpy.int64)).sum())
            self.values += int(values.sum(dtype=numpy.int64))
        else:
            rows = numpy.ascontiguousarray(numpy.asarray(batch))
            self.add_numbers(rows[:, :8].copy().view(numpy.int64)[:, 0])
            self.bytes += int(rows[:, 8:].sum(dtype=numpy.int64))

    def add_pixels(self, pixels, labels):
        if str(pixels.dtype) != "uint8" or sorted(pixels.shape[1:]) != [3, 224, 224]:
            raise ValueError(f"pixels of {pixels.dtype} {pixels.shape}")
        self.add_labels(labels)
        self.values += pixels.size
        some = pixels if self.samples <= 2000 else pixels[:1]  # Of many a part says as much, sooner.
        self.pixels += some.size
        self.sum += float(some.sum(dtype="int64"))
        self.sum_of_squares += float((some.astype("int32") ** 2).sum(dtype="int64"))

    def add_labels(self, labels):
        labels = [int(label) for label in labels]
        self.samples += len(labels)
        for label in labels:
            self.labels[label] = self.labels.get(label, 0) + 1

    def add_numbers(self, numbers):
        numbers = [int(number) for number in numbers]
        self.samples += len(numbers)
        self.numbers += sum(numbers)
        self.squares += sum(number * number for number in numbers)

    def json(self):
        result = {name: getattr(self, name) for name in ("samples", "numbers", "squares", "bytes", "values")}
        if self.labels:
            result["labels"] = sorted(self.labels.items())
        if self.sum:
            result["mean"] = self.sum / self.pixels
            result["variance"] = self.sum_of_squares / self.pixels - result["mean"] ** 2
        return result


# ---- What it costs -------------------------------------------------------------------------------------


def tree():
    """This process and those that it has started."""
    found, new = [], [os.getpid()]
    while new:
        process = new.pop()
        found.append(process)
        try:
            for thread in os.listdir(f"/proc/{process}/task"):
                with open(f"/proc/{process}/task/{thread}/children") as file:
                    new += map(int, file.read().split())
        except OSError:
            pass  # It has ended.
    return found


def cpu_seconds():
    """Of all of them, and of those that have ended."""
    ticks = 0
    for process in tree():
        try:
            with open(f"/proc/{process}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15] if process == os.getpid() else fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def private_bytes():
    """Of memory that no file backs."""
    kib = 0
    for process in tree():
        try:
            with open(f"/proc/{process}/smaps_rollup") as file:
                kib += sum(int(line.split()[1]) for line in file if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
        except OSError:
            pass
    return 1024 * kib


# ---- The commands --------------------------------------------------------------------------------------


def measure(start, task, command):
    clock = time.perf_counter
    begin = clock()
    batches = start(command["setting"], ENDLESS)
    next(batches)
    first = clock() - begin
    end = clock() + command["warm"]
    while clock() < end:
        next(batches)
    count, limit, cpu, begin = 0, command["seconds"], cpu_seconds(), clock()
    while (seconds := clock() - begin) < limit:
        count += units(task, next(batches))
    result = {"units": count, "seconds": seconds, "cpu": cpu_seconds() - cpu, "first": first, "memory": private_bytes()}
    batches.close()
    return result


def epoch(start, task, command):
    digest = Digest() if command.get("check") else None
    cpu, begin, count, first = cpu_seconds(), time.perf_counter(), 0, None
    for batch in start(command["setting"], 1):
        if first is None:
            first, memory = time.perf_counter() - begin, private_bytes()
        count += units(task, batch)
        if digest:
            digest.add(task, batch)
    result = {"units": count, "seconds": time.perf_counter() - begin, "cpu": cpu_seconds() - cpu, "first": first,
              "memory": memory}  # fmt: skip
    return {**result, "digest": digest.json()} if digest else result


def accelerate(start, command, ready, go):
    """A simulated accelerator: computes (sleeps) so long for each batch. Returns the seconds that
    all took."""
    batches = start(command["setting"], ENDLESS)
    next(batches)
    os.write(ready, b"0")
    os.read(go, 1)
    begin = time.perf_counter()
    for _ in range(command["batches"]):
        time.sleep(command["compute"])
        next(batches)
    return time.perf_counter() - begin


def accelerators(start, _, command):
    """So many of them, each a process; all begin when all have their first batch."""
    ready, go, results = os.pipe(), os.pipe(), os.pipe()
    children = []
    for _ in range(command["number"]):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(go[1])
                os.write(results[1], f"{accelerate(start, command, ready[1], go[0])}\n".encode())
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                for process in tree()[1:]:
                    os.kill(process, 9)
                os._exit(status)
        children.append(child)
    for end in (go[0], ready[1], results[1]):
        os.close(end)
    begun = 0
    while begun < len(children) and (got := os.read(ready[0], 64)):
        begun += len(got)
    os.close(go[1])
    with os.fdopen(results[0]) as file:
        seconds = [float(line) for line in file]
    os.close(ready[0])
    for child in children:
        os.waitpid(child, 0)
    if len(seconds) != len(children):
        raise RuntimeError("an accelerator has ended early")
    return {"seconds": seconds}


COMMANDS = {"measure": measure, "epoch": epoch, "accelerators": accelerators}


def main():
    name, task, folder = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")  # What libraries print goes to the standard error.
    os.dup2(2, 1)
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    peer, data = importlib.import_module(f"with_{name}"), Data(folder)

    def start(setting, epochs):
        return peer.TASKS[task](data, setting, epochs)

    for line in sys.stdin:
        command = json.loads(line)
        try:
            if command["do"] == "about":
                prepare = getattr(peer, "PREPARE", {}).get(task)
                if prepare:
                    prepare(data)
                answer = {"versions": peer.versions(), "settings": peer.SETTINGS(task, command["cores"])}
            else:
                answer = COMMANDS[command["do"]](start, task, command)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        gc.collect()
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # Some libraries wait for their threads.


if __name__ == "__main__":
    main()
