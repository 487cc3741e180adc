# SPDX-License-Identifier: Apache-2.0
"""The pictures of the pages (SVG). Each is drawn from one source, and must be the same when it is drawn again."""

import importlib
import pathlib
import sys
import tempfile

import links
import route

ROOT = links.ROOT


def measured(module, folder, store):
    """Returns a function that draws a store of measurements by `module` in `folder`. The bytes are the same only with the
    matplotlib of requirements.txt."""

    def draw():
        sys.path[:0] = [str(ROOT / folder)]
        source = importlib.import_module(module)
        with tempfile.TemporaryDirectory() as scratch:
            picture = pathlib.Path(scratch) / "picture.svg"
            if not source.draw(source.load(ROOT / store), picture):
                raise SystemExit("docs: no matplotlib: scripts/setup docs installs it")
            return picture.read_text()

    return draw


PICTURES = {
    "docs/route.svg": route.draw,
    "docs/migration.svg": measured("migration_table", "scripts/gpu_check", "examples/migration/measured.json"),
    "docs/measured/ladder-table.svg": measured("ladder_table", "scripts/gpu_check", "examples/resnet/ladder-table.json"),
    "docs/measured/peers.svg": measured("table", "benchmarks/peers", "benchmarks/peers/measured.json"),
}


def drawn():
    """Yields (name, file, text) of each picture."""
    return [(name, ROOT / name, draw()) for name, draw in PICTURES.items()]


def check():
    """Returns lines for the user."""
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
