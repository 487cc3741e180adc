# SPDX-License-Identifier: Apache-2.0
"""The data of benchmarks/peers/run: made once, the same bytes each time, with what a loader must deliver of them."""

import array
import collections
import json
import pathlib
import random
import shutil
import subprocess

SIZES = {"images": 2000, "records": 30_000, "record_bytes": 12_296, "storage_samples": 4000, "storage_bytes": 114_660,
         "texts": 60_000, "slow_samples": 2000, "loop_samples": 100_000}  # fmt: skip
SMALL = {"images": 200, "records": 600, "record_bytes": 12_296, "storage_samples": 800, "storage_bytes": 114_660,
         "texts": 600, "slow_samples": 100, "loop_samples": 1000}  # fmt: skip


def numbers(count):
    """The sums over the numbers 0 ... count - 1, each once."""
    return {"samples": count, "numbers": sum(range(count)), "squares": sum(i * i for i in range(count)) % 2**64}


def make_images(folder, make, count):
    """The same pictures, as files in folders and in tar files. 100 labels."""
    common = ["--train", str(count), "--val", "0", "--classes", "100", "--plain", "--width", "500", "--height", "375"]
    for name, more in (("jpeg", []), ("shards", ["--shards-of", str(max(1, count // 8))])):
        subprocess.run([make, "--out", folder / name, *common, *more], check=True)
    (folder / "tar").mkdir()
    for shard in sorted((folder / "shards").rglob("*.tar")):
        shard.rename(folder / "tar" / shard.name)
    shutil.rmtree(folder / "shards")
    files = sorted((folder / "jpeg/train").rglob("*.JPEG"))
    counts = collections.Counter(path.parent.name for path in files)
    labels = [[label, counts[name]] for label, name in enumerate(sorted(counts))]
    contents = [path.read_bytes() for path in files]
    return {"jpeg_folder": {"samples": count, "labels": labels, "values": count * 224 * 224 * 3},
            "tar": {"samples": count, "bytes": sum(map(len, contents)), "numbers": sum(map(sum, contents)),
                    "counts": sorted(counts.values())}}  # fmt: skip


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


def make(folder, make_images_program, sizes):
    """Writes all into `folder` unless it is there. Returns the sizes and what is true of them."""
    folder = pathlib.Path(folder)
    about = folder / "data.json"
    if about.exists():
        known = json.loads(about.read_text())
        if known["sizes"] == sizes:
            return known
        raise SystemExit(f"run: {folder} has data of other sizes: remove it, or name another folder with --data")
    print(f"making the data in {folder}, once ...", flush=True)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    truth = make_images(partial, make_images_program, sizes["images"])
    truth["records"] = make_records(partial / "records.bin", sizes["records"], sizes["record_bytes"])
    truth["storage"] = make_records(partial / "storage.bin", sizes["storage_samples"], sizes["storage_bytes"])
    truth["tokens"] = make_tokens(partial, sizes["texts"])
    truth["slow_sample"], truth["loop"] = numbers(sizes["slow_samples"]), numbers(sizes["loop_samples"])
    (partial / "data.json").write_text(json.dumps({"sizes": sizes, "truth": truth}) + "\n")
    partial.rename(folder)
    return json.loads(about.read_text())


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
