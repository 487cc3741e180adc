#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each header includes only from its own floor and the floors below it, and each folder
of detail/ only from the folders that FOLDERS names. The folders in NO_CALLS_BACK have no virtual function and no std::function
of their own, and a header of pipeline/ has at most MOST_LINES lines. Each header has its names in the inline namespace of
the ABI, and version.hpp, which names it, among what it includes.

A file in detail/ stands on the floor of whoever includes it, and may include the header that it
completes. It is named after its main class, in snake_case, unless it completes a public header or
has no class. Use: check_floors.py INCLUDE_DIR
"""
import pathlib
import re
import sys

FLOORS = [  # from the ground up
    ["version", "error", "failure", "placement", "ranks", "state", "tensor", "ragged", "stats", "stats_export", "tune", "tuning", "verdict", "markers", "stream_ref", "file", "read_queue", "read_queue_options", "store", "read_ahead", "token_type", "upstream"],
    ["cuda", "layout", "sampler", "any_sampler", "mixture", "record_file", "mapped_records", "mds_shards", "npy_file", "subset", "tf_example", "tf_record_file", "file_folder", "tar_shards", "packed_file", "packed_file_writer", "token_file", "packing"],
    ["pinned_pool", "device_arena", "device_transform", "source", "step_graph", "launch", "producer_options", "prefetcher_options"],
    ["batch_producer", "prefetcher", "readback", "memory_resource"],
    ["dlpack"],
    ["penstock"],
]
FOLDERS = {  # each may include itself, detail/ itself, and public headers of its floor or below
    "sync": [],  # threads; the standard library only, no CUDA
    "order": ["sync"],  # which samples, in which order: pure functions
    "memory": ["sync"],
    "observe": ["sync"],
    "storage": ["sync"],
    "pipeline": ["sync", "order", "memory", "observe"],
}
NO_CALLS_BACK = ["pipeline", "observe"]  # these call nobody through a pointer, but for what the user gave them:
USERS_OWN = ["read_ahead_cursor"]
MOST_LINES = 600  # of a header in pipeline/
SEVERAL_CLASSES = ["batch_members", "block_batch", "checks", "json", "tune_plan", "units"]
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


def reached(root, name, seen):
    """All headers of penstock that `name` includes, itself or through others."""
    for used in includes(root, name):
        if used not in seen and (root / used).exists():
            seen.add(used)
            reached(root, used, seen)
    return seen


def namespace_problems(root, path):
    text = (root / path).read_text()
    for line in re.findall(r"^namespace penstock\b(?!::inline PENSTOCK_ABI\b).*", text, re.M):
        yield f"{path} has `{line}`: write namespace penstock::inline PENSTOCK_ABI"
    if "PENSTOCK_ABI" in text and "version.hpp" not in reached(root, path, {str(path)}):
        yield f"{path} opens PENSTOCK_ABI, and neither it nor what it includes includes <penstock/version.hpp>"


def folder_problems(root, path):
    """What is wrong with a header of a folder: with what it includes, and with its name."""
    folder, name = path.parts[1], path.stem
    if folder not in FOLDERS:
        yield f"{path}: {folder}/ is new: add it to FOLDERS in {sys.argv[0]}"
        return
    for used in includes(root, path):
        parts = pathlib.PurePath(used).parts
        if parts[0] == "detail" and len(parts) > 2 and parts[1] not in [folder, *FOLDERS[folder]]:
            yield f"{path} includes {used}: {folder}/ may include only {', '.join(FOLDERS[folder]) or 'itself'}"
        if folder == "sync" and parts[0] != "detail" and used != "version.hpp":
            yield f"{path} includes {used}: sync/ includes the standard library only"
    text = (root / path).read_text()
    if folder in NO_CALLS_BACK and name not in USERS_OWN:
        for word in re.findall(r"\bstd::function\b|\bvirtual\b", text):
            yield f"{path} has {word}: {folder}/ calls nobody back"
    if folder == "pipeline" and text.count("\n") > MOST_LINES:
        yield f"{path} has {text.count(chr(10))} lines, more than {MOST_LINES}: give what is not its main class's to a header of its own"
    if folder == "storage" or name in SEVERAL_CLASSES or f"{name}.hpp" in FLOOR:
        return
    classes = re.findall(r"^(?:class|struct) (?:alignas\(\d+\) )?(\w+)[^;]*$", text, re.M)
    main_class = "".join(word.capitalize() for word in name.split("_"))
    if classes and main_class not in classes:
        yield f"{path} has no class {main_class}, but {', '.join(classes)}: name it after its main class"


def main():
    root = pathlib.Path(sys.argv[1])
    headers = sorted(path.name for path in root.glob("*.hpp"))
    found = [f"{name} stands on no floor: add it to {sys.argv[0]}" for name in headers if name not in FLOOR]
    found += [f'{path}: write #include <penstock/...>, not "..."' for path in root.rglob("*.hpp")
              if re.search(r'^\s*#\s*include\s*"', path.read_text(), re.M)]
    for header in headers:
        if header in FLOOR:
            found += problems(root, header, header, [header])
    for path in sorted(path.relative_to(root) for path in root.rglob("*.hpp")):
        found += namespace_problems(root, path)
    for path in sorted(path.relative_to(root) for path in root.glob("detail/*/*.hpp")):
        found += folder_problems(root, path)
    print("\n".join(sorted(set(found))) or f"{len(headers)} headers keep to their floors, {len(FOLDERS)} folders to theirs")
    return 1 if found or not headers else 0


sys.exit(main())
