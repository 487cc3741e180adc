#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ladder_table_test.py SCRIPTS: what scripts/gpu-check ladder-table measures, in which order and time, with programs
that stand in for the rungs; and what it makes of the results: table and picture of the README."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import xml.etree.ElementTree

scripts = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(scripts))
import ladder_measure
import ladder_table

README = f"""# Title

before
{ladder_table.BEGIN}

old

{ladder_table.END}
behind
"""
RUNG = """#!/usr/bin/env python3
import json, os, sys, time
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
with open("calls", "a") as calls:
    calls.write(os.path.basename(sys.argv[0]) + "\\n")
with open("asked", "a") as asked:
    asked.write(" ".join(sys.argv[1:]) + "\\n")
if os.path.exists("fail"):
    sys.exit("out of order")
if os.path.exists("slow"):
    time.sleep(60)
number = int(os.path.basename(sys.argv[0])[:2])
json.dump({"rung": f"T{number}", "name": "name", "change": "change", "operations": "stand-in", "precision": "fp16",
           "images_per_second": 100 * number + open("calls").read().count(os.path.basename(sys.argv[0])),
           "load_ms": 1, "copy_ms": 2, "compute_ms": 3, "idle": 0.25, "skipped_steps": 1,
           "losses": [2.5, None, 2.0]}, open(options["--json"], "w"))
"""


def require(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def row(rung, speed, side="penstock", model="resnet18", **more):
    return {"side": side, "model": model, "rung": rung, "name": f"name{rung}", "batch": 512, "image_size": 224,
            "images_per_second": speed, "all": [speed * 0.9, speed, speed * 1.1], "load_ms": 1, "copy_ms": 0.5,
            "compute_ms": 12.3, "idle": 0.125, "machine": "GPU-A", "driver": "1.2", "cores": 16, "workers": 14,
            "commit": "abc1234", "date": "2026-11-22", "with": "cudnn 9" if side == "penstock" else "PyTorch 2",
            **more}  # fmt: skip


def render(*results):
    command = [sys.executable, scripts / "ladder_table.py", *results, "--store", "store.json", "--readme", "README.md",
               "--picture", "picture.svg"]  # fmt: skip
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def lines_of(rung):
    return [line for line in pathlib.Path("README.md").read_text().splitlines() if line.startswith(f"| {rung} ")]


def table():
    """Rows are merged, rendered between the markers alone, and the same bytes come again."""
    readme = pathlib.Path("README.md")
    readme.write_text(README)
    require(render()[0] == 0, "nothing measured")
    text = readme.read_text()
    require("Not measured yet" in text and "old" not in text, text)
    require(text.startswith("# Title\n\nbefore\n") and text.endswith("\nbehind\n"), text)

    first = [row("T1", 1000.0), row("T2", 1500.0), row("T14", 20000.0), row("T2", 1200.0, "pytorch"),
             row("T1", 900.0, "pytorch", batch=32), row("best", 25000.0, "pytorch"), row("T1", 77.0, model="resnet50"),
             {**row("max-autotune", 0, "pytorch"), "failed": "not done in 120 s"}]  # fmt: skip
    ladder_table.save(pathlib.Path("first.json"), first)
    require(render("first.json")[0] == 0, "the first results")
    (line,) = lines_of("T2")
    require(line == "| T2 nameT2 | 512 | 1,500 | 1,350 to 1,650 | +50.0 % | +47.0 % | 1.50 | 1,200 | 1.00 | 0.50 | 12.3 "
            "| 12.5 % |", line)  # fmt: skip
    require(len(lines_of("T1")) == 2 and "900" not in lines_of("T1")[0].split("|")[8], "a peer of another batch")
    text = readme.read_text()
    require("25,000 images/s" in text and "over the best of these: 0.80" in text, text)
    require("max-autotune: not done in 120 s" in text and "### ResNet-50" in text, text)
    require("One GPU-A (16 CPU cores, 14 of them load; driver 1.2), commit abc1234, 2026-11-22." in text, text)

    newer = [row("T2", 3000.0, machine="GPU-B", commit="def5678")]
    ladder_table.save(pathlib.Path("newer.json"), newer)
    require(render("newer.json")[0] == 0, "newer results")
    require("| 3,000 |" in lines_of("T2")[0] and len(lines_of("T2")) == 1, "the newer row does not count")
    require("| 2,700 to 3,300 |  | +47.0 % |  | 1,200 |" in lines_of("T2")[0], "a gain over a row of another commit")
    text = readme.read_text()
    require("One GPU-B" in text and "def5678, 2026-11-22: ResNet-18 penstock T2" in text, text)
    picture()
    require(render()[0] == 0 and readme.read_text() == text, "the same results, another table")

    require("NaN" not in text, text)
    nan = [row("T2", 1300.0, "pytorch", last_loss=float("nan")), row("T1", 950.0, "pytorch", last_loss=2.3),
           row("best", 26000.0, "pytorch", machine="GPU-B", last_loss=float("nan"))]  # fmt: skip
    ladder_table.save(pathlib.Path("nan.json"), nan)
    require(render("nan.json")[0] == 0, "results with NaN")
    text = readme.read_text()
    require("| 1,300, loss NaN |" in lines_of("T2")[0] and "950 |" in lines_of("T1")[0], "a loss of NaN is not told")
    require("26,000 images/s, loss NaN." in text and "*Loss NaN*" in text, text)
    require("over the best of these" not in text, "a ratio of two machines")

    require(render("nowhere.json")[0] == 1, "results that are not there")
    readme.write_text("no markers")
    status, output = render()
    require(status == 1 and "README.md" in output, output)


def picture():
    path = pathlib.Path("picture.svg")
    if importlib.util.find_spec("matplotlib") is None:
        require(not path.exists(), "a picture by nobody")
        return
    before = path.read_bytes()
    texts = " ".join(element.text or "" for element in xml.etree.ElementTree.parse(path).iter())
    require(all(word in texts for word in ("nameT14", "20,000", "ResNet-50", "PyTorch")), texts)
    require(render()[0] == 0 and path.read_bytes() == before, "the same results, another picture")


def measure(*options, status=0):
    """What was printed, and the rows of the store."""
    command = [sys.executable, scripts / "ladder_measure.py", "--programs", ".", "--data", ".", "--plans", ".", "--store",
               "measured.json", "--left", "left", "--dry-run", "--models", "resnet18", *options]  # fmt: skip
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "PENSTOCK_COMMIT": "abc1234"})  # fmt: skip
    require(done.returncode == status, f"{options}: exit status {done.returncode}, not {status}\n{done.stdout}")
    return done.stdout, ladder_table.load(pathlib.Path("measured.json"))


def calls():
    path = pathlib.Path("calls")
    return path.read_text().split() if path.exists() else []


def measurements():
    """Three runs each, the ends first; what is there is not measured again; what failed, or had no time, is said."""
    for name in ladder_table.ladder().RUNGS + ladder_table.ladder().IMAGE_RUNGS[-2:]:
        path = pathlib.Path(f"{name}_emulated")
        path.write_text(RUNG)
        path.chmod(0o755)
    output, rows = measure("--rungs", "T1,T14")
    mine = calls()
    require(mine == ["14_records_and_graph_emulated"] * 3 + ["01_baseline_emulated"] * 3, mine)
    first = next(row for row in rows if (row["side"], row["rung"]) == ("penstock", "T1"))
    require(first["images_per_second"] == 102 and sorted(first["all"]) == [101, 102, 103], first)
    require(first["first_loss"] == 2.5 and first["last_loss"] == 2.0 and first["skipped_steps"] == 1, first)
    require(first["machine"].startswith("no GPU") and first["commit"] and first["date"], first)
    _, again = measure("--rungs", "T1,T14")
    require(calls() == mine and again == rows, "measured again")

    _, rows = measure("--rungs", "T15,T16")
    require(calls() == mine, "T15 without images")
    _, rows = measure("--rungs", "T15,T16", "--images", "jpegs")
    require(calls()[len(mine):] == ["15_images_emulated"] * 3 + ["16_hardware_decoder_emulated"] * 3, calls())
    asked = pathlib.Path("asked").read_text().split("\n")
    require("--images jpegs" in asked[-2] and "--data" not in asked[-2] and "--workers 2" in asked[-2], asked[-2])
    require("--data ." in asked[0] and "--images" not in asked[0], asked[0])

    pathlib.Path("fail").touch()
    output, rows = measure("--rungs", "T2", status=1)
    require("out of order" in output and not any(row["rung"] == "T2" for row in rows), output)
    pathlib.Path("fail").unlink()
    pathlib.Path("slow").touch()
    slow = ladder_table.ladder().run_rung([pathlib.Path("01_baseline_emulated").resolve()], [], 3, os.environ, 1)
    require(slow is None, slow)
    pathlib.Path("slow").unlink()
    measure("--rungs", "T2,T3", "--seconds", "1")
    left = pathlib.Path("left").read_text()
    require(left.startswith("ladder-table=resnet18  (penstock T3,") and "penstock T2" in left, left)


def peers():
    """PyTorch's side: what it is asked for, and what becomes of its answers."""
    asked = []

    def run(command, **_):
        asked.append(dict(zip(map(str, command[2::2]), map(str, command[3::2]))))
        pathlib.Path(asked[-1]["--json"]).write_text(json.dumps(
            [{"failed": "not done in 9 s (--limit)"} if asked[-1]["--compile"] == "max-autotune" else
             {"images_per_second": 5.0, "all": [5.0], "loss": 2.0, "with": "PyTorch 2"}]))  # fmt: skip

    ladder_measure.subprocess = types.SimpleNamespace(run=run, PIPE=subprocess.PIPE)
    option = types.SimpleNamespace(data=pathlib.Path("data"), plans=pathlib.Path("."), dry_run=False)
    for rung, compiled, batch in (("T6", "default", "32"), ("best", "default", "512"), ("max-autotune", "max-autotune", "512")):
        size = ladder_measure.sizes("resnet18", rung, option)
        result = ladder_measure.measure_pytorch("resnet18", rung, size, 9, option)
        want = {"--only": "best" if rung == "max-autotune" else rung, "--compile": compiled, "--batch": batch,
                "--large-batch": batch, "--repeat": "3", "--limit": "9", "--image-size": "224"}  # fmt: skip
        require(want.items() <= asked[-1].items(), f"{rung}: {asked[-1]}")
        require(("failed" in result) == (rung == "max-autotune"), result)


with tempfile.TemporaryDirectory() as scratch:
    os.chdir(scratch)
    table()
    measurements()
    peers()
