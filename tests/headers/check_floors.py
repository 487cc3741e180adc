#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each header includes only from its own floor and the floors below it.

A file in detail/ stands on the floor of whoever includes it, and may include the header that it
completes. Use: check_floors.py INCLUDE_DIR
"""
import pathlib
import re
import sys

FLOORS = [  # from the ground up
    ["error", "failure", "placement", "ranks", "state", "tensor", "ragged", "stats", "stats_export", "tune", "tuning", "verdict", "markers", "stream_ref", "emulation", "store", "read_ahead", "upstream"],
    ["cuda", "layout", "sampler", "any_sampler", "record_file", "mapped_records", "file_folder", "tar_shards", "packed_file", "packed_file_writer"],
    ["pinned_pool", "device_arena", "device_transform", "source", "step_graph", "launch"],
    ["batch_producer", "readback", "memory_resource"],
    ["prefetcher"],
    ["dlpack"],
    ["penstock"],
]
FLOOR = {f"{name}.hpp": number for number, names in enumerate(FLOORS, 1) for name in names}


def includes(root, name):
    return re.findall(r'^\s*#\s*include\s*<penstock/([^>]+)>', (root / name).read_text(), re.M)


def problems(root, header, name, path):
    """What is wrong with `name`, reached from `header` through the files in `path`."""
    for used in includes(root, name):
        way = " -> ".join([*path, used])
        if used in path:
            if not (name.startswith("detail/") and used == header):
                yield f"a circle: {way}"
        elif used.startswith("detail/"):
            yield from problems(root, header, used, [*path, used])
        elif FLOOR.get(used, 0) > FLOOR[header]:
            yield f"{header} (floor {FLOOR[header]}) includes {used} (floor {FLOOR[used]}): {way}"
        elif FLOOR.get(used) == FLOOR[header]:
            yield from problems(root, used, used, [*path, used])


def main():
    root = pathlib.Path(sys.argv[1])
    headers = sorted(path.name for path in root.glob("*.hpp"))
    found = [f"{name} stands on no floor: add it to {sys.argv[0]}" for name in headers if name not in FLOOR]
    found += [f'{path}: write #include <penstock/...>, not "..."' for path in root.rglob("*.hpp")
              if re.search(r'^\s*#\s*include\s*"', path.read_text(), re.M)]
    for header in headers:
        if header in FLOOR:
            found += problems(root, header, header, [header])
    print("\n".join(sorted(set(found))) or f"{len(headers)} headers keep to their floors")
    return 1 if found or not headers else 0


sys.exit(main())
