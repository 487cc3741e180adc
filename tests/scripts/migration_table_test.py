#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""migration_table_test.py SCRIPTS: what scripts/gpu-check migration makes of its results. The page is what the store gives,
so nobody has typed a figure; and a story that is not true is found."""

import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import xml.etree.ElementTree

scripts = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(scripts))
import migration_measure
import migration_table
from migration_table import FINDINGS, KINDS, ROOT, STEPS


def row(kind, step, speed):
    rules = [rule for rule, gone in FINDINGS.get(step, {}).items() if not gone] + ["gap", "slow-first-batch"]
    return {"kind": kind, "step": step, "images": 10, "all": [speed, speed - 1, speed + 1], "images_per_second": speed,
            "checksum": "12ab", "idle": 0.5, "told": "load 1.00, blur 2.00, histogram 3.00",
            "findings": [{"rule": rule, "count": 2000, "cost": 1500000, "share": 0.25, "evidence": f"Seen in {step}.",
                          "remedy": "Change it."} for rule in rules],
            "timeline": {"workers": 0, "rows": {"main thread": [["load", 0.0, 500.0, "a < b"]], "copies": [],
                                                "kernels": [["kernel", 500.0, 0.1, "k"]]}}}  # fmt: skip


def results():
    rows = [row(kind, step, 100.0 * 2**place) for kind in KINDS for place, step in enumerate(STEPS)]
    return {"machine": "A <machine>", "driver": "1", "cores": 2, "commit": "abc", "date": "2026-11-01",
            "size": "512 x 512", "rows": rows}  # fmt: skip


def make(folder, *arguments, status=0):
    command = [sys.executable, scripts / "migration_table.py", *arguments, "--store", folder / "store.json", "--page",
               folder / "page.md", "--figures", folder / "figures.md", "--picture", folder / "picture.svg"]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done
    return done.stderr


def copy_pages(folder):
    shutil.copy(ROOT / "docs/migration.md", folder / "page.md")
    shutil.copy(ROOT / "docs/measured/migration.md", folder / "figures.md")


def test_tables(scratch):
    copy_pages(scratch)
    (scratch / "results.json").write_text(json.dumps(results()))
    make(scratch, scratch / "results.json")
    page = (scratch / "page.md").read_text()
    figures = (scratch / "figures.md").read_text()
    assert "800 (799 to 801) | 2.00 | 8.0 | 50 %" in figures and "One A <machine>, 2 CPU cores" in figures, figures
    assert "load 1.00, blur 2.00" in page
    assert "blocking-call: 2,000 times, 1.5 ms (25.0 % of the measured time)\n  Seen in 4_streams." in page
    assert "4_streams   blocking-call 25.0 %, gap 25.0 %\n" in page and "slow-first" not in page
    if importlib.util.find_spec("matplotlib"):
        picture = (scratch / "picture.svg").read_text()
        assert "Not measured" not in page and picture.count(">a &lt; b<") == 4
        assert xml.etree.ElementTree.fromstring(picture) is not None
    else:  # The page shows none.
        assert not (scratch / "picture.svg").exists() and "![" not in page
    make(scratch)
    assert (scratch / "page.md").read_text() == page and (scratch / "figures.md").read_text() == figures
    (scratch / "page.md").write_text(page.replace("<!-- migration: jpeg -->", ""))
    assert "jpeg end" in make(scratch, status=1)


def test_page(scratch):
    store = ROOT / "examples/migration/measured.json"
    copy_pages(scratch)
    shutil.copy(ROOT / "docs/migration.svg", scratch / "picture.svg")  # which `scripts/docs --check` compares
    if store.exists():
        shutil.copy(store, scratch / "store.json")
    make(scratch)
    for name, made in ("docs/migration.md", "page.md"), ("docs/measured/migration.md", "figures.md"):
        assert (scratch / made).read_text().replace("picture.svg", "migration.svg") == (ROOT / name).read_text(), (
            f"{name} is not what scripts/gpu_check/migration_table.py makes of the store: run it")


def test_remedies(_):
    """The page shows what penstock-trace says today: its remedies are the store's."""
    sources = "\n".join(path.read_text() for path in (ROOT / "src/trace").glob("rules*.cpp"))
    said = re.sub(r'"\s*\n\s*"', "", sources)  # the parts of a literal
    store = ROOT / "examples/migration/measured.json"
    for row in json.loads(store.read_text())["rows"] if store.exists() else []:
        for finding in row.get("findings", []):
            assert finding["remedy"] in said, f"no rule of src/trace says: {finding['remedy']}"


def wrong(change):
    """What check_story says of results that are changed."""
    measurement = migration_measure.Measurement(types.SimpleNamespace(seconds=1))
    measurement.rows = {(one["kind"], one["step"]): one for one in results()["rows"]}
    change(measurement.rows)
    measurement.check_story()
    return measurement.wrong


def test_story(_):
    assert wrong(lambda rows: None) == []
    assert "not the same" in wrong(lambda rows: rows["ppm", "3_reuse"].update(checksum="other"))[0]
    assert "3_reuse, jpeg: synchronous-copy should be found" in wrong(lambda rows: rows["jpeg", "3_reuse"].update(findings=[]))
    allocation = {"rule": "allocation"}
    assert "4_streams, ppm: allocation should not be found" in wrong(
        lambda rows: rows["ppm", "4_streams"]["findings"].append(allocation))


for test in (test_tables, test_page, test_remedies, test_story):
    with tempfile.TemporaryDirectory() as folder:
        test(pathlib.Path(folder))
    print(f"{test.__name__}: passed")
