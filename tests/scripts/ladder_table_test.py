#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ladder_table_test.py SCRIPTS: what scripts/gpu-check ladder-table and ladder-peers measure, in which order and time, with
programs that stand in for the rungs; and what they make of the results: the tables and the picture of the READMEs."""

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
import json, os, re, sys, time
name = os.path.basename(sys.argv[0])
infers = "infer" in os.path.dirname(os.path.abspath(sys.argv[0]))
with open("calls", "a") as calls:
    calls.write(name + "\\n")
with open("asked", "a") as asked:
    asked.write(" ".join(sys.argv[1:]) + "\\n")
if os.path.exists("fail"):
    sys.exit("out of order")
if os.path.exists("slow"):
    time.sleep(60)
number, letter = re.match(r"(\\d+)([a-z]?)_", name).groups()
json.dump({"rung": f"{'I' if infers else 'T'}{int(number)}{letter}", "name": "name", "after": "T1", "change": "change",
           "operations": "stand-in", "precision": "fp16", "uint8": "--uint8" in sys.argv, "requests": [128], "contexts": 1,
           "images_per_second": 100 * int(number) + open("calls").read().count(name), "device_bytes": 3 << 30,
           "batch_ms": 4, "bound": "compute", "bound_ms": 3, "load_ms": 1, "copy_ms": 2, "compute_ms": 3, "idle": 0.25,
           "skipped_steps": 1, "losses": [2.5, None, 2.0]}, open(sys.argv[sys.argv.index("--json") + 1], "w"))
"""
TRAIN, INFER = ladder_table.ladder(), ladder_table.inference_ladder()


def require(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def row(rung, speed, side="penstock", model="resnet18", **more):
    return {"side": side, "model": model, "rung": rung, "setting": "", "name": f"name{rung}", "after": "", "batch": 512,
            "image_size": 224, "images_per_second": speed, "all": [speed * 0.9, speed, speed * 1.1], "load_ms": 1,
            "copy_ms": 0.5, "compute_ms": 12.3, "idle": 0.125, "device_bytes": 3 << 30, "machine": "GPU-A", "driver": "1.2",
            "cores": 16, "workers": 14, "commit": "abc1234", "date": "2026-11-22", "requests": [128], "batch_ms": 4,
            "bound": "compute", "bound_ms": 3, "with": "cudnn 9" if side == "penstock" else "PyTorch 2", **more}  # fmt: skip


def render(*results, peers=()):
    command = [sys.executable, scripts / "ladder_table.py", *results, "--store", "store.json", "--readme", "README.md",
               "--inference", "inference.md", "--picture", "picture.svg", "--peer-store", "peers.json",
               *(["--peers", *peers] if peers else [])]  # fmt: skip
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def lines_of(rung, page="README.md"):
    return [line for line in pathlib.Path(page).read_text().splitlines() if line.startswith(f"| {rung} ")]


def table():
    """Rows are merged, rendered between the markers alone, and the same bytes come again. A row of an older commit is marked."""
    readme, inference = pathlib.Path("README.md"), pathlib.Path("inference.md")
    readme.write_text(README)
    inference.write_text(README)
    require(render()[0] == 0, "nothing measured")
    for page in (readme, inference):
        text = page.read_text()
        require("Not measured yet" in text and "old" not in text, text)
        require(text.startswith("# Title\n\nbefore\n") and text.endswith("\nbehind\n"), text)

    first = [row("T1", 1000.0), row("T2", 1500.0, after="T1"), row("T8b", 4000.0, after="T8"),
             row("T9", 20000.0, after="T8", all=[20000.0]), row("T1", 77.0, model="resnet50"),
             row("T1", 10.0, setting="JPEG files"), row("T2", 50.0, after="T1", setting="JPEG files"),
             row("I1", 1000.0), row("I4", 9000.0, after="I1"), row("I7", 30.0, setting="8 images")]  # fmt: skip
    ladder_table.save(pathlib.Path("first.json"), first)
    require(render("first.json")[0] == 0, "the first results")
    main, jpeg = lines_of("T2")
    require(main == "| T2 nameT2 | T1 | 512 | 1,500 | 1,350 to 1,650 | +50.0 % | +47.0 % | 1.50 | 1.00 | 0.50 | 12.3 | 12.5 % "
            "| 3.00 |", main)  # fmt: skip
    require("| 50.0 |" in jpeg and "| +400.0 % | +47.0 % | 5.00 |" in jpeg, jpeg)
    require("| one run | – | +5 %\\* | 20.00 |" in lines_of("T9")[0], lines_of("T9"))
    require(len(lines_of("T1")) == 3 and not lines_of("I1"), "rungs of the other ladder")
    text = readme.read_text()
    require("### ResNet-50" in text and "### ResNet-18, JPEG files" in text and "T9 on T8b" in text, text)
    require("Medians of 1 to 3 runs. One GPU-A (16 CPU cores, 14 of them load; driver 1.2), commit abc1234, 2026-11-22." in text, text)
    require("|  |" not in text, f"an empty cell: {text}")
    head = text.split("### ResNet-50, 224 x 224\n\n")[1].partition("\n")[0]
    require(head.startswith("| rung | batch | images/s |") and "gain" not in head, f"columns without a value: {head}")
    (line,) = lines_of("I4", inference)
    require(line == "| I4 nameI4 | I1 | 128 | 4.00 | 9,000 | 8,100 to 9,900 | +800.0 % | +119.7 % | 9.00 | 1.00 | 0.50 | 12.3 "
            "| compute, 75 % | 3.00 |", line)  # fmt: skip
    require("### ResNet-18, 8 images" in inference.read_text() and not lines_of("T1", inference), inference.read_text())

    more = [row("T2", 1600.0, after="T1", all=[1600.0, 1700.0])]
    ladder_table.save(pathlib.Path("more.json"), more)
    require(render("more.json")[0] == 0 and len(lines_of("T1")) == 3 and "| 1,600 |" in lines_of("T2")[0], "a row of the same commit")
    require("Medians of 1 to 3 runs (of two, the slower). " in readme.read_text(), readme.read_text())
    picture()
    text = readme.read_text()
    require(render()[0] == 0 and readme.read_text() == text, "the same results, another table")

    newer = [row("T2", 3000.0, after="T1", commit="def5678", date="2026-11-23"), row("T1", 1200.0, commit="def5678", date="2026-11-23")]
    ladder_table.save(pathlib.Path("newer.json"), newer)
    require(render("newer.json")[0] == 0 and "| 3,000 | 2,700 to 3,300 | +150.0 % | +47.0 % | 2.50 |" in lines_of("T2")[0], lines_of("T2"))
    require("commit def5678, 2026-11-23." in readme.read_text() and "| T9 nameT9 † |" in readme.read_text(), readme.read_text())
    require("† of commit abc1234, 2026-11-22:" in readme.read_text() and "†" not in lines_of("T2")[0], readme.read_text())
    require("| 20.00 |" in lines_of("T9")[0], f"an old row beside T1 of the new commit: {lines_of('T9')}")
    require("| +400.0 % |" in lines_of("T2")[1], f"the gain of its own commit: {lines_of('T2')}")
    text = readme.read_text()
    require(render()[0] == 0 and readme.read_text() == text, "the same results of two commits, another table")
    require(render("newer.json")[0] == 0 and readme.read_text() == text, "the same results twice")

    other = [row("T2", 3000.0, after="T1", machine="GPU-B", commit="def5678")]
    ladder_table.save(pathlib.Path("other.json"), other)
    require(render("other.json")[0] == 0 and not lines_of("T1") and "| 3,000 |" in lines_of("T2")[0], "rows of two machines")
    require("One GPU-B" in readme.read_text() and "GPU-A" not in readme.read_text(), readme.read_text())

    require(render("nowhere.json")[0] == 1, "results that are not there")
    readme.write_text("no markers")
    status, output = render()
    require(status == 1 and "README.md" in output, output)
    readme.write_text(README)


def joined():
    """Results of two calls under the same conditions are runs of one row, each once; those under others are not."""
    def one(speed, **more):
        its = row("T3", speed, all=[speed], **more)
        return [{**its, "runs": [ladder_table.figures(its)]}]

    for name, rows in (("a", one(300.0)), ("b", one(100.0)), ("c", one(200.0)), ("larger", one(800.0, batch=1024))):
        ladder_table.save(pathlib.Path(f"{name}.json"), rows)
    store = pathlib.Path("store.json")
    store.unlink()
    for results, speed, runs in ((("a.json", "b.json"), 100.0, [300.0, 100.0]), (("b.json",), 100.0, [300.0, 100.0]),
                                 (("c.json",), 200.0, [300.0, 100.0, 200.0]), (("larger.json",), 800.0, [800.0])):  # fmt: skip
        require(render(*results)[0] == 0, results)
        (found,) = ladder_table.load(store)
        require(found["images_per_second"] == speed and found["all"] == runs, f"{results}: {found}")


def peer_table():
    """PyTorch's rungs beside ours of the same call."""
    rows = [row("T1", 1000.0), row("T2", 1500.0), row("T14", 20000.0), row("T2", 1200.0, "pytorch"),
            row("T1", 900.0, "pytorch", batch=32), row("best", 25000.0, "pytorch"),
            {**row("max-autotune", 0, "pytorch"), "failed": "not done in 120 s"}]  # fmt: skip
    ladder_table.save(pathlib.Path("first-peers.json"), rows)
    require(render(peers=["first-peers.json"])[0] == 0, "peers")
    *_, line = lines_of("T2")
    require(line == "| T2 nameT2 | 512 | 1,500 | 1,200 | 1.25 | GPU-A | abc1234 | 2026-11-22 |", line)
    text = pathlib.Path("README.md").read_text()
    require("900" not in text, "a peer of another batch")
    require("25,000 images/s" in text and "over the best of these: 0.80" in text and "max-autotune: not done in 120 s" in text, text)
    require("NaN" not in text, text)
    nan = [row("T2", 1300.0, "pytorch", last_loss=float("nan")), row("best", 26000.0, "pytorch", machine="GPU-B", last_loss=float("nan"))]
    ladder_table.save(pathlib.Path("nan.json"), nan)
    require(render(peers=["nan.json"])[0] == 0, "peers with NaN")
    text = pathlib.Path("README.md").read_text()
    require("| 1,300, loss NaN |" in text and "26,000 images/s, loss NaN." in text and "*Loss NaN*" in text, text)
    require("over the best of these" not in text, "a ratio of two machines")


def picture():
    path = pathlib.Path("picture.svg")
    if importlib.util.find_spec("matplotlib") is None:
        require(not path.exists(), "a picture by nobody")
        return
    before = path.read_bytes()
    texts = " ".join(element.text or "" for element in xml.etree.ElementTree.parse(path).iter())
    require(all(word in texts for word in ("nameT9", "20,000", "ResNet-50")), texts)
    require(render()[0] == 0 and path.read_bytes() == before, "the same results, another picture")


def measure(*options, status=0, store="measured.json"):
    """What was printed, and the rows of the store."""
    command = [sys.executable, scripts / "ladder_measure.py", "--programs", ".", "--data", ".", "--plans", ".", "--store",
               store, "--left", "left", "--dry-run", "--models", "resnet18", *options]  # fmt: skip
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "PENSTOCK_COMMIT": "abc1234"})  # fmt: skip
    require(done.returncode == status, f"{options}: exit status {done.returncode}, not {status}\n{done.stdout}")
    return done.stdout, ladder_table.load(pathlib.Path(store))


def calls():
    path = pathlib.Path("calls")
    return path.read_text().split() if path.exists() else []


def stand_ins():
    names = [f"train/{name}" for name in dict.fromkeys(TRAIN.RUNGS + TRAIN.IMAGE_RUNGS)]
    names += [f"infer/rungs/{program}" for _, program, _ in INFER.RUNGS]
    for name in names:
        path = pathlib.Path(f"{name}_emulated")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RUNG)
        path.chmod(0o755)


def measurements():
    """Everything once, then twice more; what is there is not measured again; what failed, or had no time, is said."""
    stand_ins()
    output, rows = measure("--rungs", "T1,T14,I1")
    mine = calls()
    one_round = ["01_baseline_emulated", "14_records_and_graph_emulated", "01_baseline_emulated",  # T1, T14, I1
                 "01_baseline_emulated", "14_records_and_graph_emulated", "01_baseline_emulated",  # under settings
                 "14_records_and_graph_emulated", "01_baseline_emulated", "01_baseline_emulated"]  # fmt: skip
    require(mine == one_round * 3, mine)
    first = next(row for row in rows if (row["rung"], row["setting"]) == ("T14", ""))
    require(first["images_per_second"] == sorted(first["all"])[1] and len(set(first["all"])) == 3, first)
    require(first["first_loss"] == 2.5 and first["last_loss"] == 2.0 and first["skipped_steps"] == 1, first)
    require(first["machine"].startswith("no GPU") and first["commit"] and first["date"], first)
    require({row["setting"] for row in rows} == {"", "batch 64", "32 x 32", "8 images", "batches of 32, 32 x 32", "1 image", "1 image, 32 x 32"}, rows)
    asked = pathlib.Path("asked").read_text().split("\n")
    require("--free-loading" in asked[5] and "--free-loading" not in asked[2] and "--batches 4" in asked[2], asked)
    _, again = measure("--rungs", "T1,T14,I1")
    require(calls() == mine and again == rows, "measured again")

    measure("--rungs", "T7b,I8u,I9u")
    require(calls()[len(mine) :].count("07b_exhaustive_emulated") == 1, "plans are timed exhaustively once")
    asked = pathlib.Path("asked").read_text().split("\n")
    require(any("--uint8" in words and "--batches 2,4" in words for words in asked), asked)

    before = len(calls())
    measure("--rungs", "T15,T16")
    require(len(calls()) == before, "T15 without images")
    _, rows = measure("--rungs", "T15,T16,T2", "--images", "jpegs")
    asked = pathlib.Path("asked").read_text().split("\n")[before:]
    its = dict(zip(calls()[before:], asked))
    require("--images jpegs" in its["16_hardware_decoder_emulated"] and "--workers 2" in its["16_hardware_decoder_emulated"], its)
    require({row["setting"] for row in rows if row["rung"] == "T2"} == {"", "JPEG files"}, rows)

    pathlib.Path("fail").touch()
    output, rows = measure("--rungs", "T3", status=1)
    require("out of order" in output and not any(row["rung"] == "T3" for row in rows), output)
    pathlib.Path("fail").unlink()
    pathlib.Path("slow").touch()
    slow = TRAIN.run_rung([pathlib.Path("train/01_baseline_emulated").resolve()], [], 3, os.environ, 1)
    require(slow is None, slow)
    pathlib.Path("slow").unlink()
    measure("--rungs", "T5,T6", "--seconds", "1")
    left = pathlib.Path("left").read_text()
    require(left.startswith("ladder-table=resnet18  (penstock T5, penstock T6, penstock T5 32 x 32)\n"), left)
    require("ladder-table=resnet8  (penstock T5 batches of 32, 32 x 32)" in left, left)

    ladder_table.save(pathlib.Path("old.json"), [row("T1", 5.0)])
    _, rows = measure("--rungs", "T9", store="old.json")
    require([row["rung"] for row in rows] == ["T9"], "a row of another commit stays")
    _, rows = measure("--rungs", "T9", "--peers", store="old.json")
    require("penstock" in {row["side"] for row in rows}, rows)


def peers():
    """PyTorch's side: what it is asked for, and what becomes of its answers."""
    asked = []

    def run(command, **_):
        asked.append(dict(zip(map(str, command[2::2]), map(str, command[3::2]))))
        pathlib.Path(asked[-1]["--json"]).write_text(json.dumps(
            [{"failed": "not done in 9 s (--limit)"} if asked[-1]["--compile"] == "max-autotune" else
             {"images_per_second": 5.0, "all": [5.0], "loss": 2.0, "with": "PyTorch 2"}]))  # fmt: skip

    ladder_measure.subprocess = types.SimpleNamespace(run=run, PIPE=subprocess.PIPE)
    option = types.SimpleNamespace(data=pathlib.Path("data"), plans=pathlib.Path("."), dry_run=False, peers=True)
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
    joined()
    peer_table()
    measurements()
    peers()
