#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train_test.py CASE TRAIN: what `train` promises, on tiny data sets; a case is one of the functions below.

A checkpoint has all that training has changed (weights, momenta, statistics, step, position), so two runs
have come to the same bits when their checkpoints are equal byte for byte.
"""

import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile

from programs import SMALL, header_of, interrupt, notes_of, require, run, with_value, without_checksum

train = os.path.abspath(sys.argv[2])
EPOCHS, BATCHES = 2, 20  # of 8 images
RUN = [train, *SMALL, "--batch", 8, "--records", 160, "--test-records", 40, "--epochs", EPOCHS]
# Each batch is an epoch.
EDGES = [train, *SMALL, "--batch", 40, "--records", 40, "--test-records", 40, "--epochs", 6]


def checkpoint(name):
    return pathlib.Path(name)


def without_speed(output):
    """The lines on whole epochs: loss and accuracy, and the accuracy on the test set."""
    lines = re.findall(r"^(epoch \d+: (?:loss .* %|test accuracy .* %))", output, re.MULTILINE)
    return sorted(lines)


def position(path):
    """(epoch, batch) that a checkpoint goes on at."""
    text = notes_of(path)["texts"]["prefetcher"]
    return tuple(int(number) for number in re.search(r"epoch=(\d+) batch=(\d+) ", text).groups())


def whole(command=RUN):
    """An uninterrupted run: what it printed, and its checkpoint."""
    output, _ = run([*command, "--checkpoint", "whole"])
    return without_speed(output), checkpoint("whole").read_bytes()


def resume_and_compare(command, printed, expected):
    output, _ = run([*command, "--checkpoint", "part", "--workers", 5])
    require("going on from part" in output, output)
    require(checkpoint("part").read_bytes() == expected, "the resumed run has other bits than the uninterrupted one")
    printed += without_speed(output)
    return output


def resume():
    """Interrupted in the middle of an epoch, twice, and gone on from: as if it had never stopped."""
    lines, expected = whole()
    require(len(lines) == 2 * EPOCHS, f"not {EPOCHS} epochs: {lines}")
    printed = []
    for workers, number in ((1, signal.SIGHUP), (3, signal.SIGINT)):
        output = interrupt([*RUN, "--checkpoint", "part", "--workers", workers], room=60, number=number)
        epoch, batch = position(checkpoint("part"))
        require(0 < batch < BATCHES, f"not in the middle of an epoch: {epoch}, {batch}")
        partial = f"epoch {epoch + 1}, its first {batch} of {BATCHES} batches: loss "
        require(partial in output, f"no line that begins with {partial}\n{output}")
        require("the same command goes on from part" in output, output)
        printed += without_speed(output)
    resume_and_compare(RUN, printed, expected)
    require(sorted(printed) == lines, f"printed otherwise:\n{printed}\n{lines}")


def edge():
    """Interrupted between two epochs: the accuracy that was not told before is told after."""
    lines, expected = whole(EDGES)
    printed = without_speed(interrupt([*EDGES, "--checkpoint", "part"], room=100))
    epoch, batch = position(checkpoint("part"))
    require(0 < epoch < 6 and batch == 0, f"not between epochs: {epoch}, {batch}")
    resume_and_compare(EDGES, printed, expected)
    require(sorted(set(printed)) == lines, f"printed otherwise:\n{printed}\n{lines}")


def done():
    """Gone on from its end, a run tells its accuracy again, and changes nothing."""
    lines, expected = whole()
    output, _ = run([*RUN, "--checkpoint", "whole", "--target", 0.01])
    require(without_speed(output) == [lines[-1]], f"{output}\n{lines}")
    require(checkpoint("whole").read_bytes() == expected, "the checkpoint changed")
    output, _ = run([*RUN, "--checkpoint", "whole", "--target", 1], status=1)
    require("the target of 100.00 % was not reached" in output, output)


def killed_while_writing():
    """A run that is killed within the writing of its checkpoint leaves the one before."""
    lines, expected = whole()
    interrupt([*RUN, "--checkpoint", "part"], room=60)
    before = checkpoint("part").read_bytes()
    child = subprocess.Popen([str(word) for word in [*RUN, "--checkpoint", "part"]], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)  # fmt: skip
    while not list(pathlib.Path().glob("part.partial-*")):  # also at the start, where it looks whether it can write
        require(child.poll() is None, "it ended before it was killed")
    child.kill()
    child.wait()
    require(checkpoint("part").read_bytes() == before, "the old checkpoint is lost")
    resume_and_compare(RUN, [], expected)
    require(not list(pathlib.Path().glob("*.partial*")), "what the dead run has left is still there")


def limited():
    """A limit on file sizes is an error like a full disk: it is told, and the checkpoint before stays."""
    _, expected = whole()
    interrupt([*RUN, "--checkpoint", "part"], room=60)
    before = checkpoint("part").read_bytes()
    limit = len(before) // 2
    _, errors = run([*RUN, "--checkpoint", "part"], status=1,
                    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))  # fmt: skip
    why = f"train: cannot write part, since files may have {limit} bytes (ulimit -f): File too large"
    require(why in errors, errors)
    require(checkpoint("part").read_bytes() == before, "the old checkpoint is lost")
    require(not list(pathlib.Path().glob("*.partial*")), "a partial file is left")
    resume_and_compare(RUN, [], expected)


def linked():
    """A link for a checkpoint stays, and what it leads to is written, where nothing is there, too."""
    _, expected = whole()
    os.mkdir("elsewhere")
    os.symlink("elsewhere/file", "part")
    interrupt([*RUN, "--checkpoint", "part"], room=60)
    require(os.path.islink("part") and os.path.isfile("elsewhere/file"), os.listdir("."))
    resume_and_compare(RUN, [], expected)
    require(os.path.islink("part") and os.listdir("elsewhere") == ["file"], os.listdir("elsewhere"))
    os.mkfifo("pipe")
    _, errors = run([*RUN, "--checkpoint", "pipe"], status=2)
    require("pipe: cannot be read: no regular file" in errors, errors)
    require(pathlib.Path("pipe").is_fifo(), "it is no pipe any more")


def damaged():
    """A bit that is another in the data, or a digit in the notes, is told; without a checksum the file is taken."""
    _, expected = whole()
    _, data = header_of(expected)
    places = [data + (len(expected) - data) * i // 17 for i in range(17)]
    step = re.search(rb'step\\": ?(\d)', expected).start(1)
    for place in (*places, step):
        changed = bytearray(expected)
        changed[place] ^= 1
        checkpoint("part").write_bytes(changed)
        _, errors = run([*RUN, "--checkpoint", "part"], status=2)
        require("train: part: is damaged: it has another checksum" in errors, f"byte {place}: {errors}")
        require(checkpoint("part").read_bytes() == changed, "it was written")
    checkpoint("part").write_bytes(without_checksum(expected))
    output, _ = run([*RUN, "--checkpoint", "part"])
    require("part has no checksum, as checkpoints of earlier versions" in output, output)


def refused():
    """A checkpoint of another run, or one that is damaged, is told; and it stays as it is."""
    _, expected = whole()
    checkpoint("short").write_bytes(expected[: len(expected) // 2])
    checkpoint("text").write_text("no checkpoint at all")
    checkpoint("nan").write_bytes(with_value(expected, "layer1.0.conv1.weight", float("nan")))
    checkpoint("below").write_bytes(with_value(expected, "bn1.running_var", -1.0))
    bare = without_checksum(expected)
    checkpoint("decay").write_bytes(bare.replace(b'\\"decay\\":0', b'\\"decay\\":7'))
    checkpoint("totals").write_bytes(re.sub(rb'(totals\\+": *\\+"0x)1', rb"\g<1>x", bare))

    def refuse(path, why, option, value):
        before = checkpoint(path).read_bytes()
        command = [*RUN, option, value] if option not in RUN else list(RUN)
        command[command.index(option) + 1] = value
        _, errors = run([*command, "--checkpoint", path], status=2)
        require(errors.strip().splitlines()[-1].startswith(f"train: {path}"), errors)
        require(why in errors, f"not \"{why}\":\n{errors}")
        require(checkpoint(path).read_bytes() == before, f"{path} was written")

    refuse("whole", "of another run: --seed is 1 there, and 2 here", "--seed", 2)
    refuse("whole", "of another run: --rate is 0.003125 there, and 0.2 here", "--rate", 0.2)
    refuse("whole", "of another run: --batch is 8 there, and 10 here", "--batch", 10)
    refuse("whole", "of another run: --epochs is 2 there, and 5 here", "--epochs", 5)
    refuse("whole", "of another run: the data set's fingerprint is ", "--records", 170)
    refuse("whole", "read as a checkpoint of resnet20", "--model", "resnet20")
    refuse("short", "cut short", "--workers", 1)
    refuse("text", "safetensors", "--workers", 1)
    # The run has ended: nothing would be trained any more, only its accuracy told.
    refuse("nan", '"layer1.0.conv1.weight" has a value that is not finite', "--workers", 1)
    refuse("below", '"bn1.running_var" has a variance below 0', "--workers", 1)
    refuse("decay", "decay is no integer from 0 to 2", "--workers", 1)
    refuse("totals", "does not say what the epoch has come to", "--workers", 1)
    pathlib.Path("folder").mkdir()
    _, errors = run([*RUN, "--checkpoint", "folder"], status=2)
    require("folder: cannot be read: no regular file" in errors, errors)


def not_a_number():
    """A loss that is no number ends the run, and no checkpoint of it is written over a good one. Also where it is
    that of the last batch, and all are under way at the same time."""
    short = [train, *SMALL, "--batch", 8, "--records", 16, "--test-records", 40, "--epochs", 1]
    for command in (RUN, short):
        _, errors = run([*command, "--rate", 1e20, "--checkpoint", "bad"], status=1)
        require(re.search(r"train: the loss of epoch 1, batch \d+ is -?(nan|inf): lower the learning", errors), errors)
        require(not checkpoint("bad").exists(), "a checkpoint was written")


def target():
    """Training ends when the target is reached."""
    output, _ = run([*RUN, "--target", 0.05])  # by chance: 0.1
    require(len(without_speed(output)) == 2, f"not one epoch:\n{output}")


def watch():
    """--watch tells what the prefetcher waits for in each epoch, and changes no bit."""
    lines, expected = whole()
    output, errors = run([*RUN, "--watch", "--checkpoint", "watched"])
    require(len(re.findall(r"^watched: .* \| GPU waits \d+ % \| \w+: \w+", errors, re.MULTILINE)) == EPOCHS, errors)
    require(without_speed(output) == lines and checkpoint("watched").read_bytes() == expected, output)


def mistakes():
    """What is wrong with the command line or the data is said, with exit status 2."""
    for words, why in ((["--batch", 0], "--batch"), (["--epochs", 0], "--epochs"), (["--model", "resnet9"], "resnet9"),
                       (["--data", "nowhere"], "nowhere"), (["--batch", 161], "a batch of 161"),
                       (["--no-such-option"], "--no-such-option"), (["--target", 2], "--target"),
                       (["--rate", "nan"], "--rate"), (["--rate", "inf"], "--rate"), (["--target", "nan"], "--target"),
                       (["--epochs", "18446744073709551615"], "--epochs"), (["--broken", -1], "--broken"),
                       (["--seed", -1], "--seed"), (["--checkpoint", "c", "--plans", "./c"], "same file"),
                       (["--checkpoint", ""], "--checkpoint: the value is empty"), (["--target="], "--target: the value is empty"),
                       (["--plans", ""], "--plans: the value is empty"), (["--data", ""], "--data: the value is empty"),
                       (["--seed", "18446744073709551616"], "--seed: Value 18446744073709551616 is not a whole number")):  # fmt: skip
        _, errors = run([train, "--image-size", 16, "--cache", ".", "--records", 160, "--test-records", 40, *words],
                        status=2)  # fmt: skip
        require(why in errors, f"{words}: {errors}")
    _, errors = run([*RUN, "--checkpoint", "no/such/folder"], status=1)
    require("no/such/folder" in errors and "epoch" not in errors, errors)  # before the first
    (data,) = pathlib.Path().glob("penstock-shapes-*")  # of the run with too large a batch
    with open(data / "data_batch_2.bin", "r+b") as file:
        file.write(b"\x0a")  # the label of its first record
    _, errors = run([train, "--image-size", 16, "--batch", 8, "--data", data], status=2)
    require("label 10" in errors, errors)
    output, _ = run([train, "--help"])
    require("--checkpoint" in output, output)


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    globals()[sys.argv[1]]()
