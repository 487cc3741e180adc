#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""classify_test.py CASE CLASSIFY MAKE_IMAGES WEIGHTS PREPARE: the program `classify`, as a person runs it, with the
program that writes images, a trained network's WEIGHTS and the program PREPARE; a case is one of the functions
below."""

import array
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "train"))
from programs import header_of, require, run  # noqa: E402

classify, write_images, weights, prepare = (pathlib.Path(word).resolve() for word in sys.argv[2:6])
TRAINED = ["--model", "resnet8", "--weights", weights, "--image-size", 16]
IMAGES = 20


def make(directory, count=IMAGES):
    pathlib.Path(directory).mkdir()
    run([write_images, directory, count])
    return sorted(str(path) for path in pathlib.Path(directory).iterdir())


def answers_of(output):
    return [json.loads(line) for line in output.splitlines()]


def answers(*options, status=0, **more):
    """The JSON lines of a run, and what it wrote to the error output."""
    workers = [] if "--workers" in options else ["--workers", 2]
    output, errors = run([classify, *TRAINED, "--json", *workers, *options], status=status, **more)
    return answers_of(output), errors


def tops(lines):
    return [line["top"] for line in lines]


def directory():
    """Every image of a directory, in order: the same answers for any batch size, any number of workers, any schedule;
    a JPEG's are those of the same pixels as PNG. Text says the same."""
    paths = make("photos")
    names = pathlib.Path("names.txt")
    names.write_text("".join(f"name {i}\n" for i in range(10)))
    first, errors = answers("photos", "--batch", 1, "--precision", "fp32", "--classes", names)
    require([line["path"] for line in first] == paths, first)
    require(f"{2 * IMAGES} images, 0 skipped" in errors and "p99.9" in errors, errors)
    for line in first:
        top = line["top"]
        require(len(top) == 5 and all(guess["name"] == f"name {guess['class']}" for guess in top), line)
        probabilities = [guess["probability"] for guess in top]
        require(probabilities == sorted(probabilities, reverse=True) and 0 < sum(probabilities) <= 1, line)
    require(tops(first[0::2]) == tops(first[1::2]), "a JPEG and its pixels as PNG differ")
    require(len({json.dumps(top) for top in tops(first)}) == IMAGES, "a network that tells nothing apart")
    for seed, (batch, workers) in enumerate(((3, 1), (8, 4), (64, 3))):
        environment = {**os.environ, "PENSTOCK_EMULATION": f"schedule=random,seed={seed}"}
        again, _ = answers("photos", "--batch", batch, "--workers", workers, "--precision", "fp32", "--classes", names,
                           env=environment)  # fmt: skip
        require(again == first, f"batches of {batch} give other answers")
    output, _ = run([classify, *TRAINED, "photos", "--precision", "fp32", "--classes", names, "--top", 2])
    for line, answer in zip(output.splitlines(), first):
        guesses = [f"{guess['name']} {100 * guess['probability']:.2f} %" for guess in answer["top"][:2]]
        require(line == f"{answer['path']}: {', '.join(guesses)}", line)
    everything, _ = answers("photos", "--top", 100)
    require(all(abs(sum(guess["probability"] for guess in top) - 1) < 1e-9 for top in tops(everything)), "softmax")


def unreadable():
    """What cannot be read is told in its place, and the rest is answered."""
    paths = make("photos", 4)
    whole = pathlib.Path(paths[2]).read_bytes()
    broken = {"photos/01_empty.jpg": (b"", "empty"), "photos/01_short.jpg": (whole[: len(whole) // 2], "Premature"),
              "photos/01_text.png": (b"no image", "neither JPEG nor PNG"),
              "photos/01_short.png": (pathlib.Path(paths[3]).read_bytes()[:90], "too early")}  # fmt: skip
    wanted, _ = answers(*paths)
    for path, (data, _) in broken.items():
        pathlib.Path(path).write_bytes(data)
    pathlib.Path("photos/notes.txt").write_text("of no interest")
    for batch in (1, 3, 100):
        lines, errors = answers("photos", "--batch", batch, status=1)
        require([line["path"] for line in lines] == sorted([*paths, *broken]), lines)
        for path, (_, why) in broken.items():
            (line,) = (line for line in lines if line["path"] == path)
            require(why in line["error"] and "top" not in line, line)
            require(f"skipped: {path}: {line['error']}" in errors, errors)
        require([line for line in lines if "top" in line] == wanted, lines)
        require("8 images, 4 skipped" in errors, errors)
    lines, errors = answers("photos", "--max-pixels", 100, status=2)
    require("at most 100 are decoded" in lines[0]["error"], lines)
    answers("photos", "--max-seconds", "nan", status=2)
    output, _ = run([classify, *TRAINED, *broken], status=2)  # nothing is answered
    require(output == "", output)
    lines, _ = answers(*broken, status=2)
    require(len(lines) == 4 and all("error" in line for line in lines), lines)


def stream():
    """Paths on the standard input are answered as they come."""
    paths = make("photos", 3)
    wanted, _ = answers(*paths)
    for words in (["-"], ["--stdin"]):
        command = [str(word) for word in [classify, *TRAINED, "--json", *words]]
        child = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)  # fmt: skip
        for path, answer in zip(paths, wanted):
            child.stdin.write(path + "\n")
            child.stdin.flush()
            require(json.loads(child.stdout.readline()) == answer, path)  # before the next path is there
        child.stdin.write("photos/none.jpg\n")
        child.stdin.flush()
        require("No such file" in json.loads(child.stdout.readline())["error"], "a file that is not there")
        rest, errors = child.communicate(paths[0])  # without a newline
        require(answers_of(rest) == wanted[:1], rest)
        require(child.returncode == 1 and "7 images, 1 skipped" in errors, errors)
    lines, _ = answers("-", input="".join(path + "\n" for path in paths * 30))
    require(lines == wanted * 30, lines)
    _, errors = run([classify, *TRAINED, "-"], status=2, input="")
    require("0 images, 0 skipped" in errors, errors)


def records():
    """Records of CIFAR-10's format have labels too; a label that cannot be is told by its record."""
    data = pathlib.Path("records.bin")
    images = [bytes([i % 10]) + bytes((i * 31 + j * (i + 1)) % 256 for j in range(3072)) for i in range(10)]
    data.write_bytes(b"".join(images))
    lines, errors = answers("--records", data, "--batch", 3)
    require([line["record"] for line in lines] == list(range(10)), lines)
    require([line["label"] for line in lines] == list(range(10)), lines)
    right = sum(line["top"][0]["class"] == line["label"] for line in lines)
    require(f"accuracy: {10 * right:.2f} % of 10 labels" in errors, errors)
    output, _ = run([classify, *TRAINED, "--records", data, data])
    require("records.bin, record 9: " in output and len(output.splitlines()) == 20, output)
    told, _ = run([prepare, "--model", "resnet8", "--weights", weights, "--out", "fp32", "--precision", "fp32",
                   "--batches", "1,8", "--cache", ".", "--records", 50, "--test-records", 100,
                   "--check", 100])  # fmt: skip
    (test_set,) = pathlib.Path(".").rglob("test_batch.bin")
    accuracy = told.split("accuracy: ")[1].split(" %")[0]
    _, errors = run([classify, "--prepared", "fp32", "--records", test_set])
    require(f"accuracy: {accuracy} % of 100 labels" in errors, f"{told}{errors}")
    data.write_bytes(b"".join([*images[:4], b"\x63" + images[4][1:], *images[5:]]))
    lines, _ = answers("--records", data, "--batch", 3, status=1)
    require("error" in lines[4] and [line["record"] for line in lines] == list(range(10)), lines)
    data.write_bytes(b"".join(images)[:-1])
    _, errors = run([classify, *TRAINED, "--records", data], status=2)
    require("records.bin" in errors, errors)


def prepared():
    """What `prepare` wrote is taken as it is: precision, batch sizes."""
    paths = make("photos", 5)
    for precision in ("fp32", "int8"):
        run([prepare, "--model", "resnet8", "--weights", weights, "--out", precision, "--precision", precision,
             "--batches", "1,4", "--image-size", 16, "--cache", ".", "--records", 40, "--test-records", 5, "--check", 0,
             "--calibration-images", 40])  # fmt: skip
    wanted, _ = answers(*paths, "--precision", "fp32", "--batch", 4)
    output, _ = run([classify, "--prepared", "fp32", "--json", *paths, "--workers", 2])
    require(answers_of(output) == wanted, output)
    output, _ = run([classify, "--prepared", "int8", "--json", *paths, "--batch", 3])
    require([line["path"] for line in answers_of(output)] == paths, output)
    _, errors = run([classify, "--prepared", "int8", *paths, "--batch", 5], status=2)
    require("--batch: 5" in errors and "4" in errors, errors)


def thousand_classes():
    """The trained network with a thousand classes: the ten, again and again, each time with longer weights."""
    data = weights.read_bytes()
    header, end = header_of(data)
    tensors = {name: (note, data[end + note["data_offsets"][0] : end + note["data_offsets"][1]])
               for name, note in header.items() if name != "__metadata__"}  # fmt: skip
    for name in ("fc.weight", "fc.bias"):
        note, values = tensors[name][0], array.array("f", tensors[name][1])
        row = len(values) // 10
        more = (value * (1 + k / 1000) for k in range(1000) for value in values[k % 10 * row : (k % 10 + 1) * row])
        tensors[name] = ({**note, "shape": [1000, *note["shape"][1:]]}, array.array("f", more).tobytes())
    place, header = 0, {}
    for name, (note, values) in tensors.items():
        header[name] = {**note, "data_offsets": [place, place + len(values)]}
        place += len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path("thousand").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(v for _, v in tensors.values()))


def classes():
    """Many classes, in batches of any size; those that are skipped are where they were. One image alone needs no
    memory for the logits of the largest batch."""
    thousand_classes()
    make("photos")
    for place in ("00_", "16_", "19_"):
        pathlib.Path(f"photos/{place}.png").write_bytes(b"")
    options = ["--model", "resnet8", "--weights", "thousand", "--image-size", 16, "--precision", "fp32", "--json",
               "--workers", 1, "photos"]  # fmt: skip
    wanted, _ = run([classify, *options, "--batch", 1], status=1)
    lines = answers_of(wanted)
    require(len(lines) == 2 * IMAGES + 3 and sum("error" in line for line in lines) == 3, lines)
    require(any(guess["class"] >= 10 for line in lines if "top" in line for guess in line["top"]), "only ten classes")
    alone, _ = run([classify, *options[:-1], "photos/05.png"])
    require(alone in wanted, alone)
    for batch in (43, 35, 32):
        output, _ = run([classify, *options, "--batch", batch], status=1)
        require(output == wanted, f"batches of {batch} give other answers")


def preprocessing():
    """Preprocessing is what the options say."""
    paths = make("photos", 2)
    plain, _ = answers(*paths, "--precision", "fp32")
    same, _ = answers(*paths, "--precision", "fp32", "--preset", "cifar10", "--resize", 16)
    require(same == plain, "resnet8's own preset is cifar10's")
    imagenet, _ = answers(*paths, "--precision", "fp32", "--preset", "imagenet")
    by_hand, _ = answers(*paths, "--precision", "fp32", "--resize", 18, "--mean", "0.485,0.456,0.406", "--std",
                         "0.229,0.224,0.225")  # fmt: skip
    require(imagenet == by_hand and imagenet != plain, imagenet)


def interrupted():
    """After Ctrl-C, what is answered is whole and in order."""
    paths = make("photos", 3)
    command = [str(word) for word in [classify, *TRAINED, "--json", "-"]]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        child = subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)  # fmt: skip
        child.stdin.write("".join(path + "\n" for path in paths))
        child.stdin.flush()
        first = child.stdout.readline()
        child.send_signal(number)  # it waits for more paths
        output, errors = child.stdout.read(), child.stderr.read()
        require(child.wait(60) == 128 + number, f"{child.returncode} {errors}")
        lines = answers_of(first + output)
        require([line["path"] for line in lines] == paths[: len(lines)], lines)
        require(f"{len(lines)} image" in errors, errors)


def closed_input():
    """A standard input that is closed has no paths, whatever other files the program opens."""
    command = [str(word) for word in [classify, *TRAINED, "-"]]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                          preexec_fn=lambda: os.close(0))  # fmt: skip
    require(done.returncode == 1 and "cannot read paths: Bad file descriptor" in done.stderr, done)
    require("skipped" not in done.stderr and done.stdout == "", done)


def mistakes():
    """One clear sentence, and exit status 2."""
    make("photos", 1)
    image = "photos/00.jpg"
    pathlib.Path("empty").mkdir()
    pathlib.Path("nine").write_text("name\n" * 9)
    pathlib.Path("text").write_text("no model at all")
    for words, why in ((["none.jpg"], "no file or directory none.jpg"), (["empty"], "no JPEG or PNG file in empty"),
                       ([], "nothing to classify"), ([image, "-"], "either paths"),
                       (["-", "--records"], "either paths"),
                       ([image, "--classes", "nine"], "nine has the names of 9 classes, and the network has 10"),
                       ([image, "--classes", "none"], "none"), ([image, "--top", 0], "--top"),
                       ([image, "--batch", 0], "--batch"), ([image, "--mean", "1,2"], "--mean"),
                       ([image, "--resize", 8], "--resize: 8 pixels, and the network reads 16"),
                       ([image, "--classes", ""], "--classes: the value is empty"), (["", image], "one of them is empty"),
                       ([image, "--mean", "1,,2,3"], "an entry of 1,,2,3 is empty"),
                       ([image, "--preset", "other"], "--preset"), ([image, "--no-such-option"], "--no-such-option"),
                       (["none.bin", "--records"], "none.bin")):  # fmt: skip
        output, errors = run([classify, *TRAINED, *words], status=2, stdin=subprocess.DEVNULL)
        require(why in errors and output == "" and len(errors.splitlines()) <= 3, f"{words}: {errors}")
    for words, why in (([], "which network"), (["--weights", "text", "--model", "resnet8"], "text"),
                       (["--weights", "none"], "none"),
                       (["--weights", weights, "--model", "resnet20"], "layer1.1.conv1.weight"),
                       (["--weights", weights, "--model", "resnet9"], "resnet9"),
                       (["--prepared", "text", "--weights", weights], "excludes")):  # fmt: skip
        _, errors = run([classify, image, *words], status=2)
        require(why in errors, f"{words}: {errors}")
    with open("/dev/full", "w") as full:
        command = [str(word) for word in [classify, *TRAINED, image]]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        require(done.returncode == 1 and "cannot write the answers" in done.stderr, done)
    output, _ = run([classify, "--help"])
    require("--json" in output and "Exit status" in output, output)


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    globals()[sys.argv[1]]()
