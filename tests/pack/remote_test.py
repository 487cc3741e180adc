#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""remote_test.py PENSTOCK_PACK: sources that are URLs, of a server of the test's own: packs of them are those of the same files
on this machine, and a cache that was filled brings the bytes the next time. Signatures are not checked here."""

import pathlib
import random
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from object_server import Handler, environment, serving

PACK = sys.argv[1]
MANY, MANY_BYTES = 600, 4000


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def run(status, text, *words):
    """The program exits with the status, and writes the text. Returns how many bytes the server has sent."""
    before = Handler.sent
    done = subprocess.run([PACK, *map(str, words)], env=environment(server_url), capture_output=True, timeout=60, text=True)
    check(done.returncode == status, f"{words}: {done.returncode}: {done.stdout}{done.stderr}")
    check(text in done.stdout + done.stderr, f"no '{text}' in: {done.stdout}{done.stderr}")
    return Handler.sent - before


def same(one, other):
    check(one.read_bytes() == other.read_bytes(), f"{one} is not {other}")


def make_files(folder):
    noise = random.Random(3)
    for name in ["cat/1.jpg", "cat/a b+c.jpg", "dog/ä.jpg", *(f"dog/{i:03}.jpg" for i in range(60))]:
        path = folder / "train" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(noise.randbytes(20_000 + noise.randrange(20_000)))
    (folder / "many/class").mkdir(parents=True)
    for i in range(MANY):
        (folder / f"many/class/{i:03}.jpg").write_bytes(noise.randbytes(MANY_BYTES))
    with tarfile.open(folder / "train.tar", "w") as tar:
        for path in sorted((folder / "train").rglob("*.jpg")):
            tar.add(path, arcname=path.name)


def packs(folder):
    objects = Handler.root
    run(0, "local.pack: 63 records", objects / "train", "-o", folder / "local.pack")
    run(0, "of a folder: 63 records", "s3://bucket/train/", "-o", folder / "s3.pack")
    same(folder / "s3.pack", folder / "local.pack")
    (objects / "local.pack").write_bytes((folder / "local.pack").read_bytes())
    run(0, "of a pack: 63 records", f"{server_url}/bucket/local.pack", "-o", folder / "http.pack")
    same(folder / "http.pack", folder / "local.pack")
    run(0, "local_tar.pack: 63 records", objects / "train.tar", "-o", folder / "local_tar.pack")
    run(0, "of tar files: 63 records", "s3://bucket/train.tar", "-o", folder / "tar.pack", "--threads", "3")
    same(folder / "tar.pack", folder / "local_tar.pack")


def caches(folder):
    for number, url in enumerate(["s3://bucket/train/", "s3://bucket/local.pack", "s3://bucket/train.tar"]):
        words = [url, "--fill-cache", folder / f"cache{number}", "--cache-bytes", "10000000", "--slot-bytes", "65536"]
        first = run(0, "63 records", *words)
        again = run(0, "written: 0 B", *words)
        check(first > 1_000_000 and again < first / 10, f"{url}: {first} bytes, then {again}")
    small = ["--fill-cache", folder / "small", "--cache-bytes", str(10 * 65536), "--slot-bytes", "65536", "--threads", "1"]
    sent = run(0, "it is full", "s3://bucket/many/", *small)
    # Ten of the objects fill the cache; up to 256 more have been asked for ahead.
    check(10 * MANY_BYTES < sent < 300 * MANY_BYTES, f"{sent} bytes for a cache of ten slots")


def refusals(folder):
    url, cache = f"{server_url}/bucket/local.pack", ["--cache-bytes", "10000000"]
    run(2, "only folders of s3:// and gs://", f"{server_url}/bucket/train/", "-o", folder / "x.pack")
    run(2, "another one at a server", url, folder / "local.pack", "-o", folder / "x.pack")
    run(2, "several URLs must be tar files", url, url, "-o", folder / "x.pack")
    run(2, "--fill-cache is for URLs", folder / "local.pack", "--fill-cache", folder / "x", *cache)
    run(2, "--cache-bytes", url, "--fill-cache", folder / "x")
    run(2, "excludes", url, "--fill-cache", folder / "x", *cache, "-o", folder / "x.pack")
    run(1, "there can be no cache here", url, "--fill-cache", "/dev/null/x", *cache)
    run(1, "cache.bytes must be", url, "--fill-cache", folder / "x", "--cache-bytes", "1000")
    run(1, "HTTP 404", "s3://bucket/none.pack", "-o", folder / "x.pack")
    check(not list(folder.glob("x*")), "something is left")


with tempfile.TemporaryDirectory() as directory:
    work = pathlib.Path(directory)
    make_files(work / "objects")
    with serving(work / "objects") as server_url:
        packs(work)
        caches(work)
        refusals(work)
