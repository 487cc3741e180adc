#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train_test.py CASE TRAIN RUNGS: what `train` and the rungs (in the folder RUNGS) promise for several ranks, on tiny
data sets; a case is one of the functions below.

Checkpoints have all that training has changed: equal byte for byte, runs have come to the same bits. Ranks that
sum in another order than one rank with their whole batch come to other bits: then tensors are compared, see `near`.
"""

import array
import fcntl
import json
import os
import pathlib
import re
import resource
import signal
import sys
import tempfile
import termios
import time

from ranks import Job, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
from programs import F_SETPIPE_SZ, PAGE, SMALL, header_of, notes_of, require  # noqa: E402

train, rungs = os.path.abspath(sys.argv[2]), pathlib.Path(sys.argv[3]).resolve()
RUN = [train, *SMALL, "--seed", 6, "--records", 160, "--test-records", 37, "--epochs", 2]  # 20 batches of 8
EDGES = [train, *SMALL, "--seed", 9, "--records", 48, "--test-records", 37, "--epochs", 6]  # each batch of 48 is an epoch
SYNC = "--sync-batch-norm"


def of(ranks, whole_batch, *words, command=RUN):
    """The command for so many ranks, which have this batch together."""
    return [*command, "--batch", whole_batch // ranks, *words]


def results(output):
    """(epoch, loss, accuracy, test accuracy) of whole epochs."""
    trained = re.findall(r"^epoch (\d+): loss ([\d.]+), accuracy ([\d.]+) %", output, re.MULTILINE)
    tested = dict(re.findall(r"^epoch (\d+): test accuracy ([\d.]+) %", output, re.MULTILINE))
    return [(int(epoch), float(loss), float(right), float(tested[epoch])) for epoch, loss, right in trained]


def bytes_of(name):
    return pathlib.Path(name).read_bytes()


def position(name):
    text = notes_of(pathlib.Path(name))["texts"]["prefetcher"]
    return tuple(int(number) for number in re.search(r"epoch=(\d+) batch=(\d+) ", text).groups())


def numbers(name):
    """Tensors of float32, by name."""
    data = bytes_of(name)
    header, end = header_of(data)
    tensors = {}
    for tensor, about in header.items():
        if tensor != "__metadata__" and about["dtype"] == "F32":
            begin, stop = about["data_offsets"]
            tensors[tensor] = array.array("f", data[end + begin : end + stop])
    return tensors


def distance(first, second):
    """Of two checkpoints: the root mean square of the differences, relative to that of the numbers; the largest of
    parameters, of momenta and of statistics."""
    far = {}
    one, other = numbers(first), numbers(second)
    require(one.keys() == other.keys(), "other tensors")
    for kind, belongs in (("momenta", lambda name: name.startswith("momentum.")),
                          ("statistics", lambda name: "running_" in name),
                          ("parameters", lambda name: "running_" not in name and "momentum." not in name)):  # fmt: skip
        names = [name for name in one if belongs(name)]
        wrong = sum((a - b) ** 2 for name in names for a, b in zip(one[name], other[name]))
        far[kind] = (wrong / sum(a * a for name in names for a in one[name])) ** 0.5
    print(f"{first}, {second}: {far}")
    return max(far.values())


# Of sums in another order, over the 40 steps of RUN. Measured: 5e-7 (momenta), 7e-8 (statistics), 2e-8 (parameters).
# With another seed rounding may move an input of ReLU across 0, which costs the momenta 1e-3 to 7e-3;
# batch norm that is not synchronised is 0.8 away.
ROUNDING = 5e-6


def whole_run(ranks, *words, command=RUN, batch=8):
    name = f"whole-{ranks}"
    outputs = run(ranks, of(ranks, batch, "--checkpoint", name, *words, command=command))
    require(all(not output for output, _ in outputs[1:]), f"another rank than the first prints: {outputs}")
    return results(outputs[0][0]), name


def near():
    """2 and 4 ranks with synchronised batch norm train like one with the whole batch, and again the same bits."""
    alone, one = whole_run(1)
    require(len(alone) == 2, alone)
    for ranks in (2, 4):
        ours, name = whole_run(ranks, SYNC)
        print(alone, ours)
        require(distance(one, name) < ROUNDING, "too far from one rank")
        for (epoch, loss, right, _), (its_epoch, its_loss, its_right, _) in zip(ours, alone):
            require(epoch == its_epoch and abs(loss - its_loss) < 2e-3 and abs(right - its_right) < 2, (ours, alone))
    first = bytes_of("whole-2")
    whole_run(2, SYNC, "--bucket", 0.01, "--first-bucket", 0, "--workers", 3)
    require(bytes_of("whole-2") != b"" and distance("whole-2", one) < ROUNDING, "other buckets")
    pathlib.Path("whole-2").unlink()
    whole_run(2, SYNC)
    require(bytes_of("whole-2") == first, "the same run has other bits")


def evaluates():
    """The accuracy on the test set is that of one rank with the same weights, with parts of it that are not full and
    for ranks that have none."""
    lines, one = whole_run(1, "--target", 0.001)
    whole = bytes_of(one)
    for ranks in (2, 4, 8):
        outputs = run(ranks, of(ranks, 8, "--checkpoint", one, "--target", 0.001))
        told = re.findall(r"test accuracy ([\d.]+) %", outputs[0][0])
        require([float(text) for text in told] == [lines[-1][3]], (ranks, outputs, lines))
        require(bytes_of(one) == whole, "the checkpoint changed")


def start_blocked(size, command, room):
    """A job whose first rank stands still once it has told `room` bytes of its progress. Returns it, and the pipe."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, F_SETPIPE_SZ, PAGE)
    os.write(writer, b"\n" * (PAGE - room))
    job = Job(size, command, errors={0: writer})
    os.close(writer)
    while True:
        waiting = int.from_bytes(fcntl.ioctl(reader, termios.FIONREAD, b"\0" * 4), sys.byteorder)
        if waiting > PAGE - room:
            return job, reader
        require(job.ranks[0].poll() is None, "it ended before it was interrupted")
        time.sleep(0.002)


def release(job, reader):
    """How all ranks ended, where the first may tell its progress again."""
    with os.fdopen(reader, "rb") as messages:
        told = messages.read().decode()
    return [(code, output, errors or told) for code, output, errors in job.end()]


def interrupt(size, command, rank, room=60):
    job, reader = start_blocked(size, command, room)
    job.ranks[rank].send_signal(signal.SIGINT)
    ended = release(job, reader)
    require(all(code == 130 for code, _, _ in ended), ended)
    return ended[0][1]


def interrupted():
    """Ctrl-C on any rank ends all behind the same batch; the same command goes on, to the same bits."""
    lines, name = whole_run(2)
    expected = bytes_of(name)
    for rank in (1, 0):
        output = interrupt(2, of(2, 8, "--checkpoint", "part"), rank)
        require("the same command goes on from part" in output, output)
    epoch, batch = position("part")
    require(batch > 0, f"not in the middle of an epoch: {epoch}, {batch}")
    outputs = run(2, of(2, 8, "--checkpoint", "part"))
    require("going on from part" in outputs[0][0], outputs)
    require(bytes_of("part") == expected, "the resumed run has other bits")


def edge():
    """At the edge of an epoch another number of ranks goes on."""
    alone, one = whole_run(1, command=EDGES, batch=48)
    ranks = [4, 2]
    output = interrupt(4, of(4, 48, "--checkpoint", "part", SYNC, command=EDGES), 3, room=100)
    epoch, batch = position("part")
    require(0 < epoch < 6 and batch == 0, f"not between epochs: {epoch}, {batch}")
    outputs = run(2, of(2, 48, "--checkpoint", "part", SYNC, command=EDGES))
    require(f"going on from part, behind {epoch} epochs" in outputs[0][0], outputs)
    require(distance(one, "part") < ROUNDING, f"too far from one rank: {ranks}")
    before = bytes_of("part")
    outputs = run(2, of(1, 48, "--checkpoint", "part", SYNC, command=EDGES), status=2)
    for rank, (_, errors) in enumerate(outputs):
        require(f"train: rank {rank}: part is a checkpoint of another run: --batch, all ranks together, is 48 there, "
                "and 96 here" in errors or "larger than the training set" in errors, errors)  # fmt: skip
    require(bytes_of("part") == before, "it was written")


def within():
    """So it does in the middle of an epoch: the ranks before and those after have each sample of it once."""
    _, one = whole_run(1)
    interrupt(2, of(2, 8, "--checkpoint", "part", SYNC), 1)
    epoch, batch = position("part")
    require(batch > 0, f"not in the middle of an epoch: {epoch}, {batch}")
    outputs = run(4, of(4, 8, "--checkpoint", "part", SYNC))
    require(f"going on from part, behind {epoch} epochs and {batch} batches" in outputs[0][0], outputs)
    require(distance(one, "part") < ROUNDING, "too far from one rank")


def check_lost(ended, seconds, rank, last_code, *words):
    for other, (code, _, errors) in enumerate(ended):
        if other == rank:
            require(code == last_code, ended)
            continue
        require(code == 1, ended)
        require(f"rank {rank}" in errors and all(word in errors for word in words), (other, errors))
    require(seconds < 20, f"{seconds} s")


def start_training(size, *words):
    """A job that has written the checkpoint `part` of its first epoch, at least, and goes on for long."""
    job = Job(size, of(size, 8, "--checkpoint", "part", "--timeout", 3, *words, command=[*RUN[:-1], 1000]))
    end = time.monotonic() + 60
    while not pathlib.Path("part").exists():
        require(time.monotonic() < end and job.ranks[0].poll() is None, "no checkpoint")
        time.sleep(0.01)
    return job


def check_intact():
    """The checkpoint is whole: the same number of ranks goes on from it, until it is interrupted."""
    require(position("part")[0] > 0, position("part"))
    job = Job(2, of(2, 8, "--checkpoint", "part", command=[*RUN[:-1], 1000]))
    time.sleep(1)
    job.ranks[0].send_signal(signal.SIGTERM)
    ended = job.end()
    require("going on from part" in ended[0][1] and ended[1][0] in (130, 143), ended)
    require(not list(pathlib.Path().glob("*.partial*")), "what a dead rank has left is still there")


def killed():
    """A rank is killed: the others say so and end, and the checkpoint is whole."""
    for rank in (1, 0):
        job = start_training(2)
        begin = time.monotonic()
        job.ranks[rank].kill()
        check_lost(job.end(), time.monotonic() - begin, rank, -signal.SIGKILL)
        check_intact()
        pathlib.Path("part").unlink()


def hangs():
    """A rank stands still: the others wait for the time-out, say so, and end."""
    job = start_training(2)
    job.ranks[1].send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    code, errors = job.ranks[0].wait(60), job.ranks[0].stderr.read()
    seconds = time.monotonic() - begin
    job.ranks[1].send_signal(signal.SIGKILL)
    require(code == 1 and "rank 1" in errors and seconds < 20, (code, seconds, errors))
    job.ranks[1].wait()
    check_intact()


def throws():
    """What one rank cannot read, or write, ends all; each says which rank it was."""
    # No room for the checkpoint: rank 0 alone writes it.
    limits = {0: (resource.RLIMIT_FSIZE, 1000)}
    run(2, of(2, 8))  # The data set is there.
    ended = Job(2, of(2, 8, "--checkpoint", "part", "--timeout", 5), limits=limits).end()
    require(ended[0][0] == -signal.SIGXFSZ and ended[1][0] == 1 and "rank 0" in ended[1][2], ended)
    require(not pathlib.Path("part").exists(), "there is a checkpoint")
    (data,) = pathlib.Path().glob("penstock-shapes-*")
    with open(data / "data_batch_2.bin", "r+b") as file:
        file.write(b"\x0a")  # the label of its first record
    ended = Job(2, [train, "--image-size", 16, "--batch", 4, "--data", data, "--epochs", 1, "--timeout", 5]).end()
    (bad,) = [rank for rank, (code, _, _) in enumerate(ended) if code == 2]
    require(f"train: rank {bad}: " in ended[bad][2] and "label 10" in ended[bad][2], ended)
    code, _, errors = ended[1 - bad]
    require(code == 1 and f"rank {bad} failed: " in errors and "label 10" in errors, ended)


def not_a_number():
    """A loss that is not finite on one rank is so on all: they end together, and leave no checkpoint."""
    for rank, (_, errors) in enumerate(run(2, of(2, 8, "--rate", 1e20, "--checkpoint", "bad"), status=1)):
        require(re.search(rf"train: rank {rank}: the loss of epoch 1, batch \d+ is -?(nan|inf): lower the learning", errors)
                or "rank" in errors and "lower the learning rate" in errors, errors)  # fmt: skip
    require(not pathlib.Path("bad").exists(), "a checkpoint was written")


def mistakes():
    """Ranks that were started differently say which, and in what."""

    def differ(option, first, last, *parts, size=2):
        common = [train, "--image-size", 16, "--cache", ".", "--records", 160, "--batch", 4, "--timeout", 10]
        words = {rank: [option, last if rank == size - 1 else first] for rank in range(size)}
        for rank, (code, _, errors) in enumerate(Job(size, common, own=words).end()):
            require(code == 2 and f"train: rank {rank}: rank {size - 1} has another {option} " in errors, errors)
            require(all(part in errors for part in parts), errors)

    differ("--seed", 1, 2, "than rank 0: 2, not 1")
    differ("--rate", 0.25, 0.5, "than rank 0: 0.5, not 0.25", size=4)
    differ("--model", "resnet8", "resnet20", "than rank 0: resnet20, not resnet8")
    ended = Job(2, of(2, 8, "--timeout", 10), own={1: [SYNC]}).end()
    require(all(code == 2 and "another --sync-batch-norm than rank 0: on, not off" in errors for code, _, errors in ended),
            ended)  # fmt: skip
    run(2, of(2, 8, "--checkpoint", "there"))
    ended = Job(2, of(2, 8, "--timeout", 10), own={0: ["--checkpoint", "there"], 1: ["--checkpoint", "nowhere"]}).end()
    require(all(code == 2 and "has another checkpoint" in errors for code, _, errors in ended), ended)
    outputs = run(4, [*RUN, "--batch", 41], status=2)
    require("a batch of 164, all ranks together, is larger than the training set of 160" in outputs[0][1], outputs)
    for words, why in ((["--timeout", 0], "--timeout"), (["--bucket", -1], "--bucket"), (["--bucket", "nan"], "--bucket")):
        _, errors = run(1, [*RUN, "--batch", 8, *words], status=2)[0]
        require(why in errors, errors)


def ladder():
    """Every rung takes ranks: on the same images it has the same losses. T13 with synchronised batch norm has those of
    one rank with the whole batch."""
    small = [*SMALL, "--records", 80, "--steps", 4, "--warmup", 1, "--workers", 2, "--precision", "fp32"]
    losses = {}
    for name in ("13_distributed", "01_baseline", "05_readback", "12_prefetcher", "14_records_and_graph"):
        program = rungs / f"{name}_emulated"
        outputs = run(2, [program, *small, "--batch", 4, "--json", name])
        require("on each of 2 ranks" in outputs[0][0] and not outputs[1][0], outputs)
        result = json.loads(pathlib.Path(name).read_text())
        require(result["ranks"] == 2 and result["batch"] == 4 and result["images_per_second"] > 0, result)
        losses[name] = result["losses"]
    require(all(its == losses["13_distributed"] for its in losses.values()), losses)
    program = rungs / "13_distributed_emulated"
    run(2, [program, *small, "--batch", 4, "--json", "ranks", "--save", "ranks-weights", SYNC])
    run(1, [program, *small, "--batch", 8, "--json", "one", "--save", "one-weights"])
    ranks, one = (json.loads(pathlib.Path(name).read_text())["losses"] for name in ("ranks", "one"))
    require(all(abs(a - b) < 1e-4 for a, b in zip(ranks, one)), (ranks, one))
    require(distance("ranks-weights", "one-weights") < ROUNDING, "too far")
    run(2, [program, *small, "--batch", 4, "--load", "ranks-weights", "--synthetic", "--json", "synthetic"])


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    globals()[sys.argv[1]]()
