# SPDX-License-Identifier: Apache-2.0
"""The data of benchmarks/peers/run: made once, the same bytes each time, with what a loader must deliver of them."""

import array
import collections
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import subprocess

SMALL = {"images": 200, "shards": 8, "records": 600, "record_bytes": 12_296, "storage_samples": 800, "storage_bytes": 114_660,
         "texts": 600, "slow_samples": 100, "loop_samples": 1000}  # fmt: skip


def sizes(cores):
    """More for more cores, as some loaders start anew with each epoch, and give each of their workers shards of its own."""
    return {"images": 1500 * max(2, cores), "shards": 4 * max(2, cores), "records": 7_500 * max(4, cores),
            "record_bytes": 12_296, "storage_samples": 4000, "storage_bytes": 114_660, "texts": 15_000 * max(4, cores), "slow_samples": 20_000,
            "loop_samples": 100_000}  # fmt: skip


def numbers(count):
    """The sums over the numbers 0 ... count - 1, each once."""
    return {"samples": count, "numbers": sum(range(count)), "squares": sum(i * i for i in range(count)) % 2**64}


def bytes_of(path):
    """How many a file has, and their sum."""
    content = path.read_bytes()
    return len(content), sum(content)


def make_images(folder, make, count, shards):
    """The same pictures, as files in folders and in tar files. 100 labels."""
    common = ["--train", str(count), "--val", "0", "--classes", "100", "--plain", "--width", "500", "--height", "375"]
    for name, more in (("jpeg", []), ("shards", ["--shards-of", str(max(1, count // shards))])):
        done = subprocess.run([make, "--out", folder / name, *common, *more], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"run: {make}: {done.stderr}")
    (folder / "tar").mkdir()
    for shard in sorted((folder / "shards").rglob("*.tar")):
        shard.rename(folder / "tar" / shard.name)
    shutil.rmtree(folder / "shards")
    files = sorted((folder / "jpeg/train").rglob("*.JPEG"))
    counts = collections.Counter(path.parent.name for path in files)
    labels = [[label, counts[name]] for label, name in enumerate(sorted(counts))]
    with multiprocessing.Pool(len(os.sched_getaffinity(0))) as pool:
        lengths, sums = zip(*pool.map(bytes_of, files, chunksize=64))
    tar = {"samples": count, "bytes": sum(lengths), "numbers": sum(sums), "counts": sorted(counts.values())}
    return {"jpeg_folder": {"samples": count, "labels": labels, "values": count * 224 * 224 * 3}, "tar": tar}


def make_records(path, count, size):
    """Records that begin with their number; the rest is random."""
    source, total = random.Random(1), 0
    rests = [source.randbytes(size - 8) for _ in range(64)]
    sums = [sum(rest) for rest in rests]
    with open(path, "wb") as file:
        for i in range(count):
            which = source.randrange(64)
            total += sums[which]
            file.write(i.to_bytes(8, "little") + rests[which])
    return {**numbers(count), "bytes": total}


def make_tokens(folder, count):
    """Texts as those of the web: half of them have less than 200 tokens, some 2,048."""
    source, offsets, values, squares = random.Random(2), [0], array.array("i"), 0
    pool = array.array("i", (source.randrange(32_000) for _ in range(65_536)))
    for _ in range(count):
        length = max(1, min(2048, int(source.lognormvariate(5.3, 1.0))))
        begin = source.randrange(len(pool) - length)
        values.extend(pool[begin : begin + length])
        squares += length * length
        offsets.append(offsets[-1] + length)
    (folder / "tokens.bin").write_bytes(values.tobytes())
    (folder / "offsets.bin").write_bytes(array.array("q", offsets).tobytes())
    return {"samples": count, "squares": squares, "values": sum(values), "units": len(values)}


def makers(program, sizes):
    """What there is to make: a function of the folder, which returns what is true of it; and the tasks that need it."""
    return [
        (("jpeg_folder", "jpeg_folder_cold", "tar_sequential", "tar_shuffled"),
         lambda folder: make_images(folder, program, sizes["images"], sizes["shards"])),
        (("records_cached", "records_cold"),
         lambda folder: {"records": make_records(folder / "records.bin", sizes["records"], sizes["record_bytes"])}),
        (("storage",),
         lambda folder: {"storage": make_records(folder / "storage.bin", sizes["storage_samples"], sizes["storage_bytes"])}),
        (("tokens",), lambda folder: {"tokens": make_tokens(folder, sizes["texts"])}),
        (("slow_sample",), lambda _: {"slow_sample": numbers(sizes["slow_samples"])}),
        (("loop",), lambda _: {"loop": numbers(sizes["loop_samples"])}),
    ]  # fmt: skip


def make(folder, program, sizes, tasks):
    """Writes into `folder` what these tasks need, unless it is there. Returns the sizes and what is true of the data."""
    folder = pathlib.Path(folder)
    about, partial = folder / "data.json", folder / "partial"
    known = json.loads(about.read_text()) if about.exists() else {"sizes": sizes, "truth": {}, "made": []}
    if known["sizes"] != sizes:
        raise SystemExit(f"run: {folder} has data of other sizes: remove it, or name another folder with --data")
    for its, make_it in makers(program, sizes):
        if its[0] in known["made"] or not set(its) & set(tasks):
            continue
        print(f"making the data of {', '.join(its)} in {folder}, once ...", flush=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        known["truth"].update(make_it(partial))
        known["made"] += its
        for path in sorted(partial.iterdir()):  # Of an earlier try there may be something.
            if (folder / path.name).is_dir():
                shutil.rmtree(folder / path.name)
            path.rename(folder / path.name)
        partial.rmdir()
        written = about.with_suffix(".partial")
        written.write_text(json.dumps(known) + "\n")
        written.rename(about)
    return known


# ---- Is what a peer delivered what there is? -------------------------------------------------------------


def wrong(task, digest, truth):
    """What is wrong with the digest of an epoch of this task; nothing if it is right. `truth` is that of all tasks, and
    of jpeg_folder holds the mean and the variance of penstock's pixels once they are known."""
    want = truth["tar"] if task.startswith("tar_") else truth["records"] if task.startswith("records_") else truth[task]
    found = {**digest, "squares": digest["squares"] % 2**64}
    for name in ("samples", "numbers", "squares", "bytes", "values"):
        if name in want and found[name] != want[name]:
            return f"{name}: {found[name]} in place of {want[name]}"
    if "labels" in want and [list(pair) for pair in found["labels"]] != want["labels"]:
        return "the labels are others"
    if "counts" in want and sorted(count for _, count in found["labels"]) != want["counts"]:
        return "the labels are others"
    # The crops are random, so that only their sums can be compared.
    if "mean" in want:
        if abs(found["mean"] - want["mean"]) > 3 or abs(found["variance"] / want["variance"] - 1) > 0.15:
            return f"pixels of mean {found['mean']:.1f}, variance {found['variance']:.0f}: not those of the files"
    return ""
