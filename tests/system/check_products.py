#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each product includes headers only of itself and of those that PRODUCTS names.
tests/core/headers/check_floors.py does the same for the folders within the core. Use: check_products.py REPOSITORY
"""

import pathlib
import re
import sys

PRODUCTS = {  # a folder of src/, and the folders whose headers it may include
    "core": [],  # and include/penstock
    "emulation": ["core"],
    "images": ["core"],
    "remote": ["core"],
    "programs": ["core"],
    "nvml": ["core"],
    "trace": ["core", "emulation", "programs", "nvml"],
    "gds": ["core"],
    "video": ["core", "images", "nvml"],
    "pack": ["core", "images", "remote", "video", "programs"],
}
SOURCES = {".hpp", ".cpp", ".cu", ".cuh"}


def sources(repository):
    """Returns (product, file) of all sources."""
    folders = [(path.name, path) for path in sorted((repository / "src").iterdir()) if path.is_dir()]
    for product, folder in [("core", repository / "include"), *folders]:
        for path in sorted(folder.rglob("*")):
            if path.suffix in SOURCES:
                yield product, path


def used_product(path, name, owner, repository):
    """Returns the product whose header an include in the file `path` names; None: a header of nobody here."""
    if name in owner:
        return owner[name]
    target = (path.parent / name).resolve()
    if not target.is_file() or not target.is_relative_to(repository / "src"):
        return None
    return target.relative_to(repository / "src").parts[0]


def main():
    repository = pathlib.Path(sys.argv[1]).resolve()
    files = list(sources(repository))
    owner = {}  # by how includes name a header: <penstock/trace/report.hpp>, "programs/output_file.hpp"
    for product, path in files:
        before, _, public = str(path).rpartition("/include/")
        owner[public if before else str(path.relative_to(repository / "src"))] = product
    found = [f"src/{product} is new: add it to PRODUCTS in {sys.argv[0]}" for product in {p for p, _ in files} - PRODUCTS.keys()]
    for product, path in files:
        for name in re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)', path.read_text(), re.MULTILINE):
            used = used_product(path, name, owner, repository)
            if used not in (None, product, *PRODUCTS.get(product, [used])):
                allowed = ", ".join(PRODUCTS[product]) or "itself"
                found.append(f"{path.relative_to(repository)} includes {name} of {used}: {product} may include only {allowed}")
    print("\n".join(found) or f"{len(files)} sources of {len(PRODUCTS)} products include only what they may")
    return 1 if found or not files else 0


sys.exit(main())
