#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train_test.py CASE TRAIN_GPT [TOOL]: runs the trainer of examples/gpt as a user does.

The case `pytorch` compares each step of it with PyTorch's on the same tokens, `make_tokens` trains on what that script (TOOL)
made of a package, and `allocation` runs it under penstock-trace (TOOL). Exit code 77: what a case needs is not there.
"""

import csv
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import files

CASE, PROGRAM = sys.argv[1:3]
SIZES = {"layers": 2, "heads": 2, "channels": 16, "length": 32, "vocabulary": 50, "batch": 4}


def words(sizes):
    return [word for name, value in sizes.items() for word in (f"--{name}", str(value))]


def run(*command, status=0):
    done = subprocess.run([PROGRAM, *map(str, command)], text=True, capture_output=True, timeout=300)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def read_log(path):
    with open(path, newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def learns(folder, data):
    """The loss falls to what a model of these documents can reach, in both precisions; the rate follows its schedule."""
    for precision in ("fp32", "bf16"):
        log = folder / "log.csv"
        text = run("--llm-c", data, *words(SIZES), "--steps", 150, "--warmup", 10, "--rate", 0.01, "--precision",
                   precision, "--log", log)  # fmt: skip
        rows = read_log(log)
        assert len(rows) == 150 and rows[0]["loss"] > 3.8, rows[0]
        assert sum(row["loss"] for row in rows[-10:]) / 10 < 2, (precision, rows[-10:])
        assert abs(rows[0]["rate"] - 0.001) < 1e-9 and rows[9]["rate"] == 0.01 and rows[-1]["rate"] < 0.00101
        assert re.search(r"^a step: [\d.]+ ms \(median\), \d+ tokens/s$", text, re.MULTILINE), text


def inputs(folder, data):
    """A batch that stays is learned by heart, and no other one is read; both kinds of steps are compared."""
    common = ["--llm-c", data, *words(SIZES), "--warmup", 0, "--rate", 0.01]
    log = folder / "log.csv"
    text = run(*common, "--steps", 80, "--input", "synthetic", "--log", log)
    losses = [row["loss"] for row in read_log(log)]
    assert losses[-1] < 1.2 and max(b - a for a, b in zip(losses, losses[1:])) < 0.3, losses
    assert "a step without input" in text and "a step:" not in text, text
    text = run(*common, "--steps", 110, "--input", "both", "--packing", "concatenate")
    assert re.search(r"^step time without input / with: \d\.\d{4}$", text, re.MULTILINE), text


def same(folder, data):
    """The number of workers changes nothing."""
    logs = [folder / f"{workers}.csv" for workers in (1, 3)]
    for log in logs:
        run("--llm-c", data, *words(SIZES), "--steps", 20, "--workers", log.stem, "--log", log)
    assert logs[0].read_bytes() == logs[1].read_bytes()


def allocation(folder, data):
    """Nothing is allocated behind the first steps."""
    done = subprocess.run([sys.argv[3], "--capture-range", "--quiet", "--fail-on", "allocation", "--out", folder / "trace", "--",
                           PROGRAM, "--llm-c", data, *words(SIZES), "--steps", "30"], text=True, capture_output=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    kernels = [row["name"] for row in json.loads((folder / "trace/report.json").read_text())["kernels"]]
    assert any("AdamW" in name for name in kernels), kernels


def mistakes(folder, data):
    assert "Exactly 1 option" in run(status=2)
    assert "cannot open" in run("--megatron", folder / "nothing", status=2)
    assert "outside of the vocabulary of 20" in run("--llm-c", data, "--vocabulary", 20, status=2)
    assert "32 channels cannot be shared by 5 heads" in run("--llm-c", data, "--heads", 5, status=2)
    few = run("--llm-c", data, "--batch", 9000, status=2)
    assert re.search(r"the files have \d+ sequences .* fewer than a batch of 9000", few), few
    assert "--rate" in run("--llm-c", data, "--rate", "nan", status=2)
    assert "loss of step" in run("--llm-c", data, *words(SIZES), "--rate", 1e3, "--warmup", 0, "--steps", 500, status=1)


def interrupt(folder, data):
    """Ctrl-C ends the run after a step, and what was done is told."""
    log, steps = folder / "log.csv", 1000
    child = subprocess.Popen([PROGRAM, "--llm-c", data, *words(SIZES), "--steps", str(steps), "--log", log], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    told = child.stderr.readline()  # of the first tenth
    child.send_signal(signal.SIGINT)
    text, _ = child.communicate(timeout=300)
    assert child.returncode == 130 and "a step:" in text, (child.returncode, told, text)
    assert steps / 10 <= len(read_log(log)) < steps


def pytorch(folder, data):
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("numpy") is None:
        print(f"skipped: {sys.executable} has no torch and numpy")
        return 77
    import gpt_pytorch
    import torch

    log, steps, length = folder / "log.csv", 12, SIZES["length"]
    run("--llm-c", data, *words(SIZES), "--in-order", "--packing", "concatenate", "--steps", steps, "--rate", 0.01,
        "--warmup", 4, "--precision", "fp32", "--seed", 3, "--log", log)  # fmt: skip
    tokens, positions = torch.tensor(files.write_llm_c(data, files.documents())), []
    count = SIZES["batch"] * length
    for i, token in enumerate(tokens):  # Documents begin with token 0, and a sequence begins anew.
        positions.append(0 if token == 0 or i % length == 0 else positions[-1] + 1)
    positions, following = torch.tensor(positions), torch.cat([tokens[1:], torch.zeros(1, dtype=torch.int64)])
    targets = torch.where(following == 0, -100, following)
    batches, model = len(tokens) // length // SIZES["batch"], gpt_pytorch.Gpt(SIZES, 3)
    assert 1 < batches < steps, batches  # Sequences that fill no batch are left out.
    farthest = 0
    for step, row in enumerate(read_log(log)):
        begin = step % batches * count
        batch = [field[begin : begin + count].reshape(-1, length) for field in (tokens, targets, positions)]
        for ours, theirs in zip((row["loss"], row["gradient_norm"]), model.step(batch, row["rate"], 1.0)):
            farthest = max(farthest, abs(ours / theirs - 1))
    print(f"PyTorch {torch.__version__}: {steps} steps, losses and norms differ by {farthest:.1e} of them at most")
    assert step == steps - 1 and farthest < 1e-4


def make_tokens(folder, data):
    if importlib.util.find_spec("tokenizers") is None or shutil.which("dpkg-deb") is None:
        print(f"skipped: {sys.executable} has no tokenizers, or there is no dpkg-deb")
        return 77
    texts = folder / "package/usr/share/doc/prose"
    texts.mkdir(parents=True)
    (folder / "package/DEBIAN").mkdir()
    control = ["Package: prose", "Version: 1", "Architecture: all", "Maintainer: nobody <nobody@example.org>", "Description: prose"]
    (folder / "package/DEBIAN/control").write_text("\n".join([*control, ""]))
    for number in range(30):
        sentence = f"Sentence {number} tells the reader something about pipelines, and ends. "
        page = f"<html><style>hidden {number}</style><p>{sentence * (5 + number)}</p></html>"
        (texts / f"{number}.html").write_text(page)
    shutil.copy(texts / "3.html", texts / "copy.html")
    (texts / "short.txt").write_text("Too short.\n")
    debs = folder / "debs"
    debs.mkdir()
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", folder / "package", debs / "prose_1_all.deb"],
                   check=True, capture_output=True)
    prefix = folder / "prose"
    done = subprocess.run([sys.executable, sys.argv[3], prefix, "--packages", "prose", "--debs", debs, "--vocabulary", "400",
                           "--llm-c"], text=True, capture_output=True, check=True)  # fmt: skip
    assert "30 documents" in done.stdout, done.stdout
    size = {**SIZES, "vocabulary": 400}
    logs = [folder / "megatron.csv", folder / "llm_c.csv"]
    for log, source in zip(logs, (["--megatron", prefix], ["--llm-c", folder / "prose.llm_c.bin"])):
        run(*source, *words(size), "--packing", "concatenate", "--steps", 15, "--log", log)
    first, second = (read_log(log)[0]["loss"] for log in logs)
    assert abs(first - second) < 0.1, (first, second)  # The same documents, with token 0 behind or in front of them.

    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(f"{prefix}.tokenizer.json")
    data = pathlib.Path(f"{prefix}.bin").read_bytes()
    ids = [int.from_bytes(data[i : i + 2], "little") for i in range(0, len(data), 2)]
    text = tokenizer.decode(ids[: ids.index(0)])
    assert text.startswith("Sentence 0 tells the reader") and "hidden" not in text, text


def main():
    has_gpu = shutil.which("nvidia-smi") and subprocess.run(["nvidia-smi", "-L"]).returncode == 0
    if "NEEDS_GPU" in os.environ and not has_gpu:
        print("skipped: no GPU")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        data = folder / "tokens.bin"
        files.write_llm_c(data, files.documents())
        return globals()[CASE](folder, data)


if __name__ == "__main__":
    sys.exit(main())
