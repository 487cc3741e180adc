#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""latency_test.py CASE LATENCY WEIGHTS PREPARE: the program `latency`, as a person runs it, with a trained network's
WEIGHTS and the program PREPARE; a case is one of the functions below."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "train"))
from programs import interrupt, require, run  # noqa: E402

latency, weights, prepare = (pathlib.Path(word).resolve() for word in sys.argv[2:5])
TRAINED = ["--model", "resnet8", "--weights", weights, "--image-size", 16, "--images", 12, "--check"]


def measure(*options, environment=None):
    output, _ = run([latency, *options, "--json", "result.json"], env={**os.environ, **(environment or {})})
    return json.loads(pathlib.Path("result.json").read_text()), output


def check_load(load, requests):
    require(load["requests"] == requests and load["wrong"] == 0, load)
    require(0 < load["p50_ms"] <= load["p99_ms"] <= load["p99_9_ms"] <= load["max_ms"], load)
    sizes = {int(size): number for size, number in load["batches"].items()}
    require(max(sizes) <= load["max_batch"], load)


def loops():
    """Closed and open loops, one after the other, on random schedules: all answers are right."""
    for seed in (1, 2):
        random = {"PENSTOCK_EMULATION": f"schedule=random,seed={seed}"}
        result, output = measure(*TRAINED, "--clients", "1,5", "--rate", "300", "--requests", 60, "--warmup", 10,
                                 "--max-batch", 4, "--batches", "1,2,4", "--contexts", 1 + seed, "--deadline", "1ms",
                                 environment=random)  # fmt: skip
        require(result["batches"] == [1, 2, 4] and result["emulated"], result)
        one, five, open_loop = result["loads"]
        for load in result["loads"]:
            check_load(load, 60)
        require(one["clients"] == 1 and one["max_batch"] == 1 and one["batches"] == {"1": 60}, one)
        require(five["loop"] == "closed" and five["max_batch"] == 4, five)
        require(open_loop["loop"] == "open" and open_loop["rate"] == 300, open_loop)
        require("5 clients" in output and "300/s poisson" in output, output)


def beyond():
    """A rate that is not reached is told, by the queue's length, which is how fast this machine is (load_test.cpp has
    one that grows whatever that is); a queue of fewer requests than the context may hold does not grow."""
    result, output = measure(*TRAINED, "--rate", 1000000, "--uniform", "--requests", 600, "--warmup", 0,
                             "--max-batch", 2, "--batches", "2")  # fmt: skip
    (load,) = result["loads"]
    check_load(load, 600)
    require(load["backlog_half"] <= 300 and load["backlog_end"] <= 600, load)
    require(load["beyond"] == ("BEYOND" in output) == ("1e+06 requests a second" in output), output)
    result, output = measure(*TRAINED, "--rate", 20, "--uniform", "--requests", 10, "--warmup", 0)
    require(not result["loads"][0]["beyond"] and "BEYOND" not in output, output)


def prepared():
    """What `prepare` wrote is taken as it is, in int8."""
    run([prepare, "--model", "resnet8", "--weights", weights, "--out", "int8", "--precision", "int8", "--batches",
         "1,4", "--image-size", 16, "--cache", ".", "--records", 40, "--test-records", 5, "--check", 0,
         "--calibration-images", 40])  # fmt: skip
    result, output = measure("--prepared", "int8", "--images", 4, "--clients", 3, "--requests", 30, "--warmup", 3)
    require(result["precision"] == "int8" and result["batches"] == [1, 4], result)
    check_load(result["loads"][0], 30)
    require("int8" in output, output)
    data = bytearray(pathlib.Path("int8").read_bytes())
    data[-1] ^= 1
    pathlib.Path("damaged").write_bytes(data)
    _, errors = run([latency, "--prepared", "damaged"], status=2)
    require("damaged: is damaged: it has another checksum" in errors, errors)


def mistakes():
    for words, why in ((["--clients", 0], "--clients"), (["--rate", 0], "--rate"), (["--deadline", "2h"], "--deadline"),
                       (["--deadline", -1], "--deadline"), (["--max-batch", 0], "--max-batch"),
                       (["--max-batch", 9, "--batches", "1,8"], "--max-batch: 9"), (["--weights", "none"], "none"),
                       (["--requests", 0], "--requests"), (["--seed", -1], "--seed"), (["--no-such-option"], "--no-such-option"),
                       (["--json", ""], "--json: the value is empty"), (["--plans="], "--plans: the value is empty"),
                       (["--clients", "1,,2"], "an entry of 1,,2 is empty"),
                       (["--seed", "99999999999999999999"], "--seed: Value 99999999999999999999 is not a whole number"),
                       (["--model", "resnet9"], "resnet9")):  # fmt: skip
        _, errors = run([latency, *words], status=2)
        require(why in errors, f"{words}: {errors}")
    _, errors = run([latency, *TRAINED, "--requests", 1, "--clients", 1, "--json", "no/such/file"], status=1)
    require("no/such/file" in errors, errors)
    for one in ("--weights", "--prepared", "--plans"):
        pathlib.Path("mine").write_text("mine")
        _, errors = run([latency, one, "mine", "--json", "mine"], status=2)
        require(f"{one} and --json are the same file" in errors, errors)
    require(pathlib.Path("mine").read_text() == "mine", "it is written over")
    output, _ = run([latency, "--help"])
    require("--rate" in output and "--clients" in output, output)


def pipe():
    """The result goes through a pipe, which stays one. SIGTERM ends the wait for a reader."""
    os.mkfifo("pipe")
    command = [str(word) for word in [latency, *TRAINED, "--requests", 5, "--warmup", 0, "--clients", 1, "--json", "pipe"]]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    result = json.loads(pathlib.Path("pipe").read_text())
    output, errors = child.communicate(timeout=60)
    require(child.returncode == 0 and result["loads"][0]["requests"] == 5, errors)
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = threading.Timer(60, child.kill)  # It may wait for ever.
    end.start()
    while not child.stdout.readline().startswith(("closed", "1 client")):  # the loop's row: it is at the pipe next
        require(child.poll() is None, "it ended")
    time.sleep(0.3)
    child.terminate()
    _, errors = child.communicate(timeout=60)
    end.cancel()
    require(child.returncode == 143 and "cannot write pipe" in errors, (child.returncode, errors))
    require(pathlib.Path("pipe").is_fifo(), "it is no pipe any more")


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    globals()[sys.argv[1]]()
