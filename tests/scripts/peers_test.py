#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""peers_test.py PEERS [PENSTOCK_PEER TBB_PEER MAKE_IMAGES]: benchmarks/peers/run with peers that are made up: one that does it
right, and some that do not. With the programs: penstock's and oneTBB's deliver what there is at each task, of tiny data."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import types

folder = pathlib.Path(sys.argv[1]).resolve()
sys.path[:0] = [str(folder / "beside"), str(folder)]
import data
import measure
import peers
import table
from workers import counts

FAKE = '''
import os, time
def versions(): return "fake 1"
def SETTINGS(task, cores): return [{"speed": 1}, {"speed": 4}, {"speed": 2}]
def batches(data, setting, epochs):
    for _ in range(epochs):
        for begin in range(0, data.sizes["slow_samples"], 10):
            time.sleep(0.004 / setting["speed"])
            yield WHAT
TASKS = {"slow_sample": batches}
'''
WHAT = {"right": "range(begin, begin + 10)", "twice": "[begin] * 10", "gone": "os._exit(3)", "wrong": "1 / 0",
        "stuck": "time.sleep(1000)"}  # fmt: skip


def options(scratch, **more):
    cpus = sorted(os.sched_getaffinity(0))
    return types.SimpleNamespace(**{
        "cpus": cpus, "log": scratch / "log.txt", "data": scratch / "data", "repeat": 3, "end": None,
        "seconds": 0.1, "search_seconds": 0.1, "versions": {"penstock": "ours", "tbb": "theirs"}, "places": peers.Places(scratch, scratch, sys.executable),
        **more})  # fmt: skip


def test_fakes(scratch):
    (scratch / "data").mkdir()
    sizes = {"slow_samples": 40}
    truth = {"slow_sample": data.numbers(40)}
    (scratch / "data/data.json").write_text(json.dumps({"sizes": sizes, "truth": truth}))
    os.environ["PYTHONPATH"] = str(scratch)
    for name, what in WHAT.items():
        (scratch / f"with_{name}.py").write_text(FAKE.replace("WHAT", what))
        peers.PEERS[name] = {"title": name, "venv": "nowhere", "imports": ["json"]}
    peers.PEERS["absent"] = {"title": "absent", "venv": "nowhere", "imports": ["no_such_module"]}
    ask = measure.Process.ask
    measure.Process.ask = lambda self, timeout, **command: ask(self, min(timeout, 2), **command)
    rows = measure.run_task("slow_sample", [*WHAT, "absent"], options(scratch), truth)
    late = measure.run_task("slow_sample", ["right"], options(scratch, end=1), truth)[0]
    assert len(late["rates"]) == late["repeat"] == 1, late
    measure.Process.ask = ask
    by = {row["peer"]: row for row in rows}
    assert by["right"]["setting"] == {"speed": 4} and by["right"]["with"] == "fake 1", by["right"]
    assert len(by["right"]["rates"]) == 3 and 0 < table.median(by["right"]["rates"]) < 10 / 0.001, by["right"]
    assert all(value > 0 for value in by["right"]["first"] + by["right"]["memory"] + by["right"]["a_core"])
    assert "numbers: 600 in place of 780" in by["twice"]["failed"], by["twice"]
    assert "ended" in by["gone"]["failed"] and "no answer" in by["stuck"]["failed"], by
    assert "ZeroDivisionError" in by["wrong"]["failed"] and "not installed" in by["absent"]["missing"], by
    assert all("rates" not in by[name] for name in ("twice", "gone", "wrong", "stuck", "absent"))


def row(task, peer, speed, **more):
    return {"task": task, "peer": peer, "with": f"{peer} 1", "setting": {"workers": 2, "map": True, "x": False},
            "rates": [speed * 2, speed * 1.8, speed * 2.2], "a_core": [speed, speed, speed], "first": [0.25] * 3,
            "memory": [2**21] * 3, "machine": "A CPU", "cores": 2, "commit": "abc1234", "date": "2026-11-23", "repeat": 3,
            **more}  # fmt: skip


def test_table(scratch):
    """Nobody types a figure, who is first is told, and the same bytes come again."""
    store, page, picture = scratch / "store.json", scratch / "page.md", scratch / "picture.svg"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nbehind\n")
    table.make(store, page, picture)
    assert "Not measured yet" in page.read_text() and "old" not in page.read_text()
    failed = {**row("loop", "dali", 1), "failed": "it has ended"}
    failed.pop("rates")
    storage = [{**row("storage", peer, 1), "rates": [number] * 3} for peer, number in (("penstock", 30), ("torch", 10))]
    for one in storage:
        one.pop("a_core")
    rows = [row("loop", "tbb", 4000.0), row("loop", "penstock", 1000.0), failed, *storage, row("jpeg_folder", "torch", 400.0),
            row("jpeg_folder", "penstock", 900.0)]  # fmt: skip
    table.save(store, rows)
    assert [one["task"] for one in table.load(store)][:2] == ["jpeg_folder"] * 2
    table.make(store, page, picture)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nbehind\n")
    both = "| 1,800 | 800, PyTorch DataLoader | 2.25 | 900 | 400, PyTorch DataLoader | 2.25 |"
    assert f"224; images/s {both}" in text, text
    assert "; batches/s | 2,000 | 8,000, oneTBB | **0.25** | 1,000 | 4,000, oneTBB | **0.25** |" in text, text
    assert "; accelerators | 30.0 | 10.0, PyTorch DataLoader | 3.00 |  |  |  |" in text, text
    assert "oneTBB calls the consumer" in text and "- DALI, CPU operators: it has ended." in text
    assert "| **penstock** | 1,800 | 1,620 to 1,980 | 900 | 1.00 | 250 | 2.00 | workers 2, map |" in text, text
    assert "A CPU, 2 cores, commit abc1234, 2026-11-23; medians of 3 turns." in text and "oneTBB: tbb 1." in text
    other = {**row("loop", "penstock", 5.0), "machine": "B CPU", "cores": 16}
    table.save(scratch / "other.json", [other])
    table.save(scratch / "measured-b.json", [{**other, "rates": [1, 1, 1]}, {**other, "task": "tokens"}])
    table.add(scratch / "measured-b.json", table.load(scratch / "other.json"))
    assert table.load(scratch / "measured-b.json") == [{**other, "task": "tokens"}, other]
    table.make(store, page, picture)
    text = page.read_text()
    assert text.index("### A CPU, 2 cores") < text.index("### B CPU, 16 cores"), text
    before = picture.read_bytes() if picture.exists() else b""
    table.make(store, page, picture)
    assert page.read_text() == text and (picture.read_bytes() if picture.exists() else b"") == before
    page.write_text("no marks")
    try:
        table.make(store, page, picture)
        raise AssertionError("a page without marks")
    except SystemExit as error:
        assert str(page) in str(error)


def test_origins(_):
    """A task of which all rows are of one commit is named once."""
    rows = [row("loop", "penstock", 1), row("loop", "tbb", 1), row("tokens", "penstock", 1),
            row("tokens", "torch", 1, commit="def5678")]  # fmt: skip
    where = list(table.origins(rows))[:2]
    assert where[0].endswith("abc1234, 2026-11-23; medians of 3 turns: loop, tokens penstock."), where
    assert where[1].endswith("def5678, 2026-11-23; medians of 3 turns: tokens torch."), where


def test_page(_):
    """The page is what the store gives."""
    page = table.PAGE.read_text()
    drawn = table.PICTURE.name if table.PICTURE.exists() else ""
    assert table.markdown(table.all_stores(table.STORE), drawn) in page, "docs/measured/peers.md: run benchmarks/peers/run --table"


def test_programs(scratch):
    """Each task, with two settings, of tiny data."""
    penstock, tbb, make_images = sys.argv[2:]
    tiny = {"images": 100, "shards": 8, "records": 700, "record_bytes": 12_296, "storage_samples": 30, "storage_bytes": 114_660,
            "texts": 500, "slow_samples": 130, "loop_samples": 1000}  # fmt: skip
    about = data.make(scratch / "data", make_images, tiny, ["tokens"])
    assert list(about["truth"]) == ["tokens"] and not (scratch / "data/jpeg").exists()
    about = data.make(scratch / "data", make_images, tiny, list(measure.TASKS))
    written = (scratch / "data/tokens.bin").stat().st_mtime_ns
    assert data.make(scratch / "data", make_images, tiny, list(measure.TASKS)) == about
    assert (scratch / "data/tokens.bin").stat().st_mtime_ns == written, "it was made anew"
    assert len(list((scratch / "data/tar").iterdir())) == 9, "shards of 12"
    places = types.SimpleNamespace(command=lambda peer, task, where: [{"penstock": penstock, "tbb": tbb}[peer], task, where])
    option = options(scratch, places=places, repeat=1, seconds=0.02, search_seconds=0.02, sizes=tiny)
    measure.STORAGE.update(batches=1, compute=0.01)
    measure.drop_from_cache = lambda paths: None  # A file system in memory drops nothing.
    measure.Contestant.accelerators = lambda self: int(self.keeps_up(2)) + 1
    for task, its in measure.PARTS.items():
        for row in measure.run_task(task, [peer for peer in its if peer in peers.PROGRAMS], option, about["truth"]):
            assert row.get("rates", [0])[0] > 0, row
    wrong = {**about["truth"]["records"], "samples": 700, "values": 0, "squares": 0}
    assert data.wrong("records_cached", wrong, about["truth"]), "a wrong sum is not seen"


def test_settings(_):
    """More cores, more to choose from; none of them for more processes than two a core."""
    assert counts(1) == [1, 2] and counts(2) == [1, 2, 4] and counts(16, 0) == [0, 4, 8, 15, 16, 32]
    for task in measure.TASKS:
        for cores in (1, 2, 16):
            settings = measure.own_settings("penstock", task, cores)
            assert all(0 < setting["workers"] <= max(8, 2 * cores) for setting in settings), settings
            assert measure.worth_trying(task, settings, cores), "none is left"
    some = [{"workers": 4}, {"threads": 8}, {"calls": 4}]
    assert measure.worth_trying("jpeg_folder_cold", some, 16) == some[1:]
    assert measure.worth_trying("jpeg_folder", some, 16) == some


def test_clock(_):
    """Tasks that would end too late are left out; what the others took corrects the estimate."""
    loader = importlib.machinery.SourceFileLoader("run", str(folder / "run"))
    run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
    loader.exec_module(run)
    plan = {"loop": ["penstock"], "tokens": ["penstock", "torch"]}
    option = types.SimpleNamespace(repeat=1, seconds=1.2, end=None)
    clock = run.Clock(plan, option)
    assert clock.has_time_for("tokens") and clock.cost == {"loop": 10, "tokens": 20}
    option.end = run.time.monotonic() + 15
    clock = run.Clock(plan, option)
    assert clock.has_time_for("loop") and not clock.has_time_for("tokens")
    clock.began -= 100  # "loop" has taken ten times as long.
    clock.ended("loop")
    assert clock.seconds(["tokens"]) > 199 and not clock.has_time_for("loop")


tests = [test_fakes, test_table, test_origins, test_page, test_settings, test_clock] if len(sys.argv) == 2 else [test_programs]
for test in tests:
    with tempfile.TemporaryDirectory() as name:
        test(pathlib.Path(name))
    print(f"{test.__name__}: passed")
