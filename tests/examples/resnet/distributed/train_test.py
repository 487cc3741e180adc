#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train_test.py CASE TRAIN RUNGS... [--nccl]: what `train` and the rungs (their folder, or the programs) promise for
several ranks, on tiny data sets; a case is one of the functions below.

Checkpoints have all that training has changed: equal byte for byte, runs have come to the same bits. Ranks that
sum in another order than one rank with their whole batch come to other bits: then tensors are compared, see `near`.

With --nccl the programs are those over NCCL: two ranks or one, each on a GPU of its own, and each step but the first is
a graph with its collectives in it. No bits can be expected there: cuDNN's algorithms add in another order for another
batch, and some in another one each time; fp16 keeps 11 binary digits. Runs that went on are then compared by their
losses: rounding grows with each step, and after the 40 of RUN a perturbation is as large as it gets, see FAR.
"""

import array
import contextlib
import fcntl
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import termios
import time

from ranks import LONG, NONE, Job, gpus_or_skip, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "train"))
from programs import F_SETPIPE_SZ, PAGE, SMALL, header_of, notes_of, require  # noqa: E402

train, rungs = os.path.abspath(sys.argv[2]), pathlib.Path(sys.argv[3]).resolve()
rungs = rungs.parent if rungs.is_file() else rungs
NCCL = sys.argv[-1] == "--nccl"
MOST = 2 if NCCL else 4  # ranks
OTHER = 1 if NCCL else 2  # ranks that go on where MOST were interrupted
WHOLE = 16 if NCCL else 8  # samples of all ranks together
TIMEOUT = 10 if NCCL else 3  # seconds to wait for a rank that does not come on
if NCCL:  # Images that cuDNN's engines take; what it has timed is timed once.
    SMALL = [*SMALL[:2], "--image-size", 32, *SMALL[4:], "--plans", pathlib.Path(train).with_name("train_test-plans")]
RUN = [train, *SMALL, "--seed", 6, "--records", 20 * WHOLE, "--test-records", 37, "--epochs", 2]  # 20 batches
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


def distances(first, second):
    """Of two checkpoints: the root mean square of the differences, relative to that of the numbers: of parameters, of
    momenta and of statistics."""
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
    return far


def distance(first, second):
    return max(distances(first, second).values())


# Of sums in another order, over the 40 steps of RUN. Measured: 5e-7 (momenta), 7e-8 (statistics), 2e-8 (parameters).
# With another seed rounding may move an input of ReLU across 0, which costs the momenta 1e-3 to 7e-3;
# batch norm that is not synchronised is 0.8 away.
ROUNDING = 5e-6
# Of an epoch's mean loss over NCCL. Of single losses after 40 steps, with fp32 on a CPU, rounding moves one by 0.001, and
# batch norm that is not synchronised by 0.1.
FAR = 0.1
# Of losses of the first four steps over NCCL, relatively: see ladder_test.py.
TF32 = 0.02


def require_same_end(losses, one, output, other):
    """The run whose last part printed `output`, and left the checkpoint `other`, came to the same as another one."""
    if not NCCL:
        return require(distance(one, other) < ROUNDING, "too far from one rank")
    ours = results(output)
    print(ours, losses)
    require(position(one) == position(other), (position(one), position(other)))
    require(ours[-1][0] == losses[-1][0] and abs(ours[-1][1] - losses[-1][1]) < FAR, (ours, losses))


def whole_run(ranks, *words, command=RUN, batch=WHOLE):
    name = f"whole-{ranks}"
    outputs = run(ranks, of(ranks, batch, "--checkpoint", name, *words, command=command))
    require(all(not output for output, _ in outputs[1:]), f"another rank than the first prints: {outputs}")
    return results(outputs[0][0]), name


def near_on_gpus():
    """Two ranks with synchronised batch norm are much nearer to one with the whole batch than without."""
    words = [rungs / "13_distributed", *SMALL, "--records", 80, "--seed", 6, "--steps", 3, "--warmup", 1, "--workers", 2,
             "--precision", "tf32"]  # fmt: skip
    losses = {}
    for name, ranks, more in (("one", 1, []), ("near", 2, [SYNC]), ("far", 2, [])):
        run(ranks, [*words, "--batch", WHOLE // ranks, "--json", name, "--save", name + "-weights", *more])
        losses[name] = json.loads(pathlib.Path(name).read_text())["losses"]
    print(losses)
    require(all(abs(a - b) < TF32 * b for a, b in zip(losses["near"], losses["one"])), losses)
    near, far = (distances("one-weights", name + "-weights") for name in ("near", "far"))
    # In fp32 on a CPU the factor is over 10,000. tf32 rounds 8,000 times as much.
    require(all(near[kind] < far[kind] / 2 for kind in far), (near, far))


def near():
    """2, 4 and 8 ranks with synchronised batch norm train like one with the whole batch, and again the same bits."""
    if NCCL:
        return near_on_gpus()
    alone, one = whole_run(1)
    require(len(alone) == 2, alone)
    for ranks in (2, 4, 8):
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
    for ranks in [2] if NCCL else [2, 4, 8]:
        outputs = run(ranks, of(ranks, WHOLE, "--checkpoint", one, "--target", 0.001))
        told = [float(text) for text in re.findall(r"test accuracy ([\d.]+) %", outputs[0][0])]
        # In fp16 the two best classes of a sample may lie as near to each other as rounding: one of 37 samples.
        away = 2.8 if NCCL else 0
        require(len(told) == 1 and abs(told[0] - lines[-1][3]) <= away, (ranks, outputs, lines))
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
        output = interrupt(2, of(2, WHOLE, "--checkpoint", "part"), rank)
        require("the same command goes on from part" in output, output)
    epoch, batch = position("part")
    require(batch > 0, f"not in the middle of an epoch: {epoch}, {batch}")
    outputs = run(2, of(2, WHOLE, "--checkpoint", "part"))
    require("going on from part" in outputs[0][0], outputs)
    if NCCL:
        return require_same_end(lines, name, outputs[0][0], "part")
    require(bytes_of("part") == expected, "the resumed run has other bits")


def edge():
    """At the edge of an epoch another number of ranks goes on."""
    alone, one = whole_run(1, command=EDGES, batch=48)
    output = interrupt(MOST, of(MOST, 48, "--checkpoint", "part", SYNC, command=EDGES), MOST - 1, room=100)
    epoch, batch = position("part")
    require(0 < epoch < 6 and batch == 0, f"not between epochs: {epoch}, {batch}")
    outputs = run(OTHER, of(OTHER, 48, "--checkpoint", "part", SYNC, command=EDGES))
    require(f"going on from part, behind {epoch} epochs" in outputs[0][0], outputs)
    require_same_end(alone, one, outputs[0][0], "part")
    before = bytes_of("part")
    outputs = run(2, of(1, 48, "--checkpoint", "part", SYNC, command=EDGES), status=2)
    for rank, (_, errors) in enumerate(outputs):
        require(f"train: rank {rank}: part is a checkpoint of another run: --batch, all ranks together, is 48 there, "
                "and 96 here" in errors or "larger than the training set" in errors, errors)  # fmt: skip
    require(bytes_of("part") == before, "it was written")


def within():
    """So it does in the middle of an epoch: the ranks before and those after have each sample of it once."""
    alone, one = whole_run(1)
    for before, after in [(2, 1)] if NCCL else [(2, 4), (8, 4), (4, 8)]:
        go_on_within(before, after, alone, one)
        pathlib.Path("part").unlink()


def go_on_within(before, after, alone, one):
    interrupt(before, of(before, WHOLE, "--checkpoint", "part", SYNC), 1)
    epoch, batch = position("part")
    require(batch > 0, f"not in the middle of an epoch: {epoch}, {batch}")
    outputs = run(after, of(after, WHOLE, "--checkpoint", "part", SYNC))
    require(f"going on from part, behind {epoch} epochs and {batch} batches" in outputs[0][0], outputs)
    require_same_end(alone, one, outputs[0][0], "part")


def check_lost(ended, seconds, rank, last_code, *words):
    for other, (code, _, errors) in enumerate(ended):
        if other == rank:
            require(code == last_code, ended)
            continue
        require(code == 1, ended)
        require(f"rank {rank}" in errors and all(word in errors for word in words), (other, errors))
        require("in the middle of a call" not in errors, (other, errors))  # It came to its end by itself.
    require(seconds < 20, f"{seconds} s")


def start_training(size, *words):
    """A job that has written the checkpoint `part` of its first epoch, at least, and goes on for long."""
    job = Job(size, of(size, WHOLE, "--checkpoint", "part", "--timeout", TIMEOUT, *words, command=[*RUN[:-1], 1000]))
    end = time.monotonic() + 60
    while not pathlib.Path("part").exists():
        require(time.monotonic() < end and job.ranks[0].poll() is None, "no checkpoint")
        time.sleep(0.01)
    return job


def check_intact():
    """The checkpoint is whole: the same number of ranks goes on from it, until it is interrupted."""
    before = position("part")
    require(before[0] > 0, before)
    job = Job(2, of(2, WHOLE, "--checkpoint", "part", command=[*RUN[:-1], 1000]))
    end = time.monotonic() + 60
    while position("part") == before:  # Before the ranks have met, SIGTERM ends them at once.
        require(time.monotonic() < end and job.ranks[0].poll() is None, "it does not go on")
        time.sleep(0.01)
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


def process_of(rank):
    """The one process of that rank whose working directory is the test's."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (folder / "environ").read_bytes().split(b"\0")
            if f"RANK={rank}".encode() in variables and (folder / "cwd").samefile("."):
                found.append(int(folder.name))
    (process,) = found
    return process


def relaunched():
    """One of 8 ranks is killed, and scripts/launch starts all again: they go on from the checkpoint, to the same bits as
    a job that nobody disturbed. So they have trained on the same samples, each as often."""
    command = [train, *SMALL, "--seed", 6, "--records", 10 * WHOLE, "--test-records", 37, "--epochs", 4]
    _, name = whole_run(8, command=command)
    launch = pathlib.Path(__file__).resolve().parents[4] / "scripts/launch"
    words = [launch, "-n", 8, "--restarts", 1, "--", *of(8, WHOLE, "--checkpoint", "part", command=command)]
    job = subprocess.Popen([str(word) for word in words], text=True, env=NONE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic() + 60
    while not pathlib.Path("part").exists():
        require(time.monotonic() < end and job.poll() is None, "no checkpoint")
        time.sleep(0.002)
    os.kill(process_of(5), signal.SIGKILL)
    output, errors = job.communicate(timeout=LONG)
    require(job.returncode == 0 and "launch: restart 1 of 1" in errors, (job.returncode, output, errors))
    require(re.search(r"^launch: rank 5 .* was ended by signal 9", errors, re.MULTILINE), errors)
    require(re.search(r"^\[0\] going on from part, behind [1-3] epochs", output, re.MULTILINE), output)
    require(bytes_of("part") == bytes_of(name), "the job that was started again has other bits")


def hangs():
    """A rank stands still: the others wait for the time-out, say so, and end."""
    job = start_training(2)
    job.ranks[1].send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    code, errors = job.ranks[0].wait(60), job.ranks[0].stderr.read()
    seconds = time.monotonic() - begin
    job.ranks[1].send_signal(signal.SIGKILL)
    require(code == 1 and "rank 1" in errors and seconds < (40 if NCCL else 20), (code, seconds, errors))
    job.ranks[1].wait()
    check_intact()


def throws():
    """What one rank cannot read, or write, ends all; each says which rank it was."""
    run(2, of(2, WHOLE))  # The data set is there.
    if not NCCL:  # which writes files of its own
        # No room for the checkpoint: rank 0 alone writes it.
        limits = {0: (resource.RLIMIT_FSIZE, 1000)}
        ended = Job(2, of(2, WHOLE, "--checkpoint", "part", "--timeout", 5), limits=limits).end()
        require(ended[0][0] == 1 and "rank 0: cannot write part, since files may have 1000 bytes" in ended[0][2], ended)
        require(ended[1][0] == 1 and "rank 0 failed: cannot write part" in ended[1][2], ended)
        require(not pathlib.Path("part").exists(), "there is a checkpoint")
    (data,) = pathlib.Path().glob("penstock-shapes-*")
    with open(data / "data_batch_2.bin", "r+b") as file:
        file.write(b"\x0a")  # the label of its first record
    words = [*SMALL[:4], *SMALL[6:], "--batch", WHOLE // 2, "--data", data, "--epochs", 1, "--timeout", TIMEOUT + 2]
    ended = Job(2, [train, *words]).end()
    (bad,) = [rank for rank, (code, _, _) in enumerate(ended) if code == 2]
    require(f"train: rank {bad}: " in ended[bad][2] and "label 10" in ended[bad][2], ended)
    code, _, errors = ended[1 - bad]
    require(code == 1 and f"rank {bad} failed: " in errors and "label 10" in errors, ended)


def not_a_number():
    """A loss that is not finite on one rank is so on all: they end together, and leave no checkpoint."""
    for rank, (_, errors) in enumerate(run(2, of(2, WHOLE, "--rate", 1e20, "--checkpoint", "bad"), status=1)):
        require(re.search(rf"train: rank {rank}: the loss of epoch 1, batch \d+ is -?(nan|inf): lower the learning", errors)
                or "rank" in errors and "lower the learning rate" in errors, errors)  # fmt: skip
    require(not pathlib.Path("bad").exists(), "a checkpoint was written")


def terminated():
    """A rank that waits for one that will not come ends at SIGTERM, as torchrun sends it then: not at the time-out."""
    job = Job(2, of(2, WHOLE, "--timeout", 60), own={1: ["--no-such-option"]})
    require(job.ranks[1].wait(60) != 0, "rank 1 took an unknown option")
    time.sleep(1)  # Rank 0 waits.
    begin = time.monotonic()
    job.ranks[0].terminate()
    require(job.ranks[0].wait(90) == -signal.SIGTERM, job.ranks[0].returncode)
    require(time.monotonic() - begin < 20, "it waited")
    job.end()


def mistakes():
    """Ranks that were started differently say which, and in what."""

    def differ(option, first, last, *parts, size=2):
        common = [train, "--image-size", 16, "--cache", ".", "--batch", 4, "--timeout", 10]
        common += ["--records", 160] if option != "--records" else []
        words = {rank: [option, last if rank == size - 1 else first] for rank in range(size)}
        for rank, (code, _, errors) in enumerate(Job(size, common, own=words).end()):
            require(code == 2 and f"train: rank {rank}: rank {size - 1} has another {option} " in errors, errors)
            require(all(part in errors for part in parts), errors)

    differ("--seed", 1, 2, "than rank 0: 2, not 1")
    differ("--rate", 0.25, 0.5, "than rank 0: 0.5, not 0.25", size=4)
    differ("--model", "resnet8", "resnet20", "than rank 0: resnet20, not resnet8")
    differ("--target", 0.25, 0.75, "than rank 0: 0.75, not 0.25")
    differ("--checkpoint", "a", "b", "than rank 0: b, not a")
    differ("--records", 160, 165, "than rank 0: 165, not 160")
    differ("--test-records", 40, 45, "than rank 0: 45, not 40")
    ended = Job(2, of(2, 8, "--timeout", 10), own={1: ["--checkpoint", "b"]}).end()
    require(all(code == 2 and "another --checkpoint than rank 0: b, not none" in errors for code, _, errors in ended), ended)
    require(not os.path.exists("a") and not os.path.exists("b"), "it trained")
    ended = Job(2, of(2, 8, "--timeout", 10), own={1: [SYNC]}).end()
    require(all(code == 2 and "another --sync-batch-norm than rank 0: on, not off" in errors for code, _, errors in ended),
            ended)  # fmt: skip
    run(2, of(2, 8, "--checkpoint", "there"))
    ended = Job(2, of(2, 8, "--timeout", 10), own={0: ["--checkpoint", "there"], 1: ["--checkpoint", "nowhere"]}).end()
    require(all(code == 2 and "another --checkpoint than rank 0: nowhere, not there" in errors for code, _, errors in ended), ended)
    # Of one name, and not the same on each rank's machine.
    os.mkdir("other")
    words = of(2, 8, "--timeout", 10, "--checkpoint", "there")
    ended = Job(2, ["sh", "-c", 'if [ "$RANK" = 1 ]; then cd other; fi; exec "$@"', "sh", *words]).end()
    require(all(code == 2 and "has another content of --checkpoint than rank 0: none, not " in errors for code, _, errors in ended), ended)
    # A rung waits for all ranks where one of them saves.
    rung = rungs / "12_prefetcher_emulated"
    small = [rung, *SMALL, "--records", 80, "--batch", 4, "--steps", 2, "--warmup", 1, "--timeout", 10]
    ended = Job(2, small, own={0: ["--save", "weights"]}).end()
    require(all(code == 2 and "another --save than rank 0: none, not weights" in errors for code, _, errors in ended), ended)
    # Each rank finds it by itself, unless another one was so much faster that it is told first.
    ended = Job(4, [*RUN, "--batch", 41]).end()
    why = "a batch of 164, all ranks together, is larger than the training set of 160"
    require(any(code == 2 for code, _, _ in ended), ended)
    require(all(why in errors and (code == 2 or (code == 1 and f" failed: {why}" in errors)) for code, _, errors in ended), ended)
    for words, why in ((["--timeout", 0], "--timeout"), (["--bucket", -1], "--bucket"), (["--bucket", "nan"], "--bucket")):
        _, errors = run(1, [*RUN, "--batch", 8, *words], status=2)[0]
        require(why in errors, errors)


def ladder():
    """Every rung takes ranks: on the same images it has the same losses, also where the steps of one are graphs with the
    collectives in them, and those of another are not. T13 with synchronised batch norm has those of one rank with the
    whole batch."""
    small = [*SMALL, "--records", 80, "--steps", 4, "--warmup", 1, "--workers", 2]
    small += ["--precision", "tf32" if NCCL else "fp32"]
    names = ["13_distributed", "12_prefetcher"]  # a graph, and none
    names += [] if NCCL else ["01_baseline", "05_readback", "14_records_and_graph"]
    suffix = "" if NCCL else "_emulated"
    losses = {}
    for name in names:
        outputs = run(2, [rungs / (name + suffix), *small, "--batch", WHOLE // 2, "--json", name])
        require("on each of 2 ranks" in outputs[0][0] and not outputs[1][0], outputs)
        result = json.loads(pathlib.Path(name).read_text())
        require(result["ranks"] == 2 and result["batch"] == WHOLE // 2 and result["images_per_second"] > 0, result)
        losses[name] = result["losses"]
    print(losses)
    first = losses["13_distributed"]
    require(len(first) == 5 and all(abs(a - b) <= (TF32 * b if NCCL else 0) for its in losses.values()
                                    for a, b in zip(its, first)), losses)  # fmt: skip
    program = rungs / ("13_distributed" + suffix)
    run(2, [program, *small, "--batch", WHOLE // 2, "--json", "ranks", "--save", "ranks-weights", SYNC])
    run(2, [program, *small, "--batch", WHOLE // 2, "--load", "ranks-weights", "--synthetic", "--json", "synthetic"])
    if NCCL:
        return  # The rest is `near`.
    run(1, [program, *small, "--batch", WHOLE, "--json", "one", "--save", "one-weights"])
    ranks, one = (json.loads(pathlib.Path(name).read_text())["losses"] for name in ("ranks", "one"))
    require(all(abs(a - b) < 1e-4 for a, b in zip(ranks, one)), (ranks, one))
    require(distance("ranks-weights", "one-weights") < ROUNDING, "too far")


if NCCL:
    gpus_or_skip(MOST)
with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    globals()[sys.argv[1]]()
