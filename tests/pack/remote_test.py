#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""remote_test.py PENSTOCK_PACK: sources that are URLs, of a server of the test's own: packs of them are those of the same files
on this machine, and a cache that was filled brings the bytes the next time. Signatures are not checked here."""

import hashlib
import http.server
import os
import pathlib
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import urllib.parse
import xml.sax.saxutils

PACK = sys.argv[1]


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


class Handler(http.server.BaseHTTPRequestHandler):
    """/bucket/KEY is a file of the folder `root`; /bucket?list-type=2 lists them as S3 does."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one
    disable_nagle_algorithm = True
    root = pathlib.Path()
    lock = threading.Lock()
    sent = 0  # bytes of files

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def list_objects(self, prefix):
        keys = sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*") if path.is_file())
        contents = "".join(
            f"<Contents><Key>{xml.sax.saxutils.escape(key)}</Key><Size>1</Size></Contents>"
            for key in keys
            if key.startswith(prefix)
        )
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        self.answer(200, f'<ListBucketResult xmlns="{space}"><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>'.encode())

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        fields = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        if "list-type" in fields:
            return self.list_objects(fields.get("prefix", ""))
        path = self.root / urllib.parse.unquote(url.path).removeprefix("/bucket").lstrip("/")
        if not path.is_file():
            return self.answer(404)
        content = path.read_bytes()
        etag = '"' + hashlib.md5(content).hexdigest() + '"'
        if self.headers.get("If-None-Match") == etag:
            return self.answer(304, ETag=etag)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not asked:
            status, body, headers = 200, content, {}
        else:
            first, last = int(asked[1]), min(int(asked[2]), len(content) - 1)
            status, body = 206, content[first : last + 1]
            headers = {"Content_Range": f"bytes {first}-{last}/{len(content)}"}
        with self.lock:
            Handler.sent += len(body)
        self.answer(status, body, ETag=etag, **headers)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 100  # A connection that does not fit is tried again a second later.


def run(status, text, *words):
    """The program exits with the status, and writes the text. Returns how many bytes the server has sent."""
    before = Handler.sent
    kept = {name: value for name, value in os.environ.items() if not name.lower().startswith(("aws_", "http_", "https_"))}
    kept |= {"HOME": "/nonexistent", "NO_PROXY": "*", "AWS_ENDPOINT_URL": server_url, "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
             "AWS_SECRET_ACCESS_KEY": "a-secret-key"}  # fmt: skip
    done = subprocess.run([PACK, *map(str, words)], env=kept, capture_output=True, timeout=60, text=True)
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
    sent = run(0, "it is full", "s3://bucket/train/", *small)
    check(200_000 < sent < 1_000_000, f"{sent} bytes for a cache of ten slots")


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
    Handler.root = work / "objects"
    make_files(Handler.root)
    listener = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    server_url = f"http://127.0.0.1:{listener.server_port}"
    packs(work)
    caches(work)
    refusals(work)
    listener.shutdown()
