# SPDX-License-Identifier: Apache-2.0
"""The pictures of the pages (SVG). Each has one source, and is what this source gives."""

import json
import pathlib
import sys
import tempfile

import links
import route

ROOT = links.ROOT


def ladder():
    """From the store of measurements beside it. The same bytes with the matplotlib of requirements.txt alone."""
    sys.path.insert(0, str(ROOT / "scripts/gpu_check"))
    import ladder_table

    with tempfile.TemporaryDirectory() as folder:
        picture = pathlib.Path(folder) / "picture.svg"
        if not ladder_table.draw(ladder_table.load(ladder_table.EXAMPLE / "ladder-table.json"), picture):
            raise SystemExit("docs: no matplotlib: scripts/setup docs installs it")
        return picture.read_text()


def migration():
    """From the store of measurements: what each step did, on one time axis."""
    sys.path.insert(0, str(ROOT / "scripts/gpu_check"))
    import migration_table

    return migration_table.picture(json.loads((ROOT / "examples/migration/measured.json").read_text()))


def peers():
    """The same of benchmarks/peers/measured.json."""
    sys.path.insert(0, str(ROOT / "benchmarks/peers"))
    import table

    with tempfile.TemporaryDirectory() as folder:
        picture = pathlib.Path(folder) / "picture.svg"
        if not table.draw(table.load(table.STORE), picture):
            raise SystemExit("docs: no matplotlib: scripts/setup docs installs it")
        return picture.read_text()


PICTURES = {"docs/route.svg": route.draw, "docs/migration.svg": migration, "docs/measured/ladder-table.svg": ladder}
if (ROOT / "benchmarks/peers/measured.json").exists():
    PICTURES["docs/measured/peers.svg"] = peers


def drawn():
    """(name, file, text) of each."""
    return [(name, ROOT / name, draw()) for name, draw in PICTURES.items()]


def check():
    """Lines for the user."""
    for name, path, text in drawn():
        if not path.exists() or path.read_text() != text:
            yield f"{name} is not what its source gives: scripts/docs --pictures draws it"
    for folder in links.FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.svg")):
            if (name := str(path.relative_to(ROOT))) not in PICTURES:
                yield f"{name} has no source: scripts/doc_site/pictures.py lists the pictures and what draws them"


def write():
    for name, path, text in drawn():
        path.write_text(text)
        print(f"docs: drew {name}")
