#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
remote_ranges.py [--python FILE] [--build DIR] [--peers P,...] [--tasks T,...] [--mib N] [--seconds S] [--turns N]
                 [--cpus SERVER,CLIENT]

penstock::remote beside other clients: the same bytes of the same server into memory of the host, over plain HTTP. The server
is an nginx of this script, one process on a core of its own. Each client is a process on the other core, and they have turns.
Printed are medians: what a second brings, and the CPU seconds of the client alone, as it may be the server that bounds the
rate; both beside ours.

parts    one object in ranges of 8 MiB, several at the same time: ours, KvikIO, s3dlio, awscrt, multi-storage-client
objects  objects of 128 KiB, each in one piece, in random order, many at the same time: the same ones, and LitData
shards   the same objects in 8 tar files, in their order: ours and WebDataset

Of each client the best of its settings (SETTINGS) is found first, ours too. Each process reads all once to compare the content,
which is not counted; then it checks lengths.
LitData reads by its StreamingRawDataset, which has the names from an indexer of this script, as nginx lists no bucket.

--python says which Python has the peers (pip install kvikio-cu13 s3dlio awscrt "multi-storage-client[boto3]" litdata
boto3 webdataset numpy); a peer that is not there, or does not run here, is left out with what it says; KvikIO takes a CUDA driver.
Ours is remote_peer of --build: cmake --preset release && cmake --build --preset release --target remote_peer. nginx is the system's.
"""

import argparse
import collections
import concurrent.futures
import io
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
PART, OBJECT, SHARDS = 8 * MIB, 128 << 10, 8
OURS = "penstock"
# What is tried of each; the functions below say what the words mean.
SETTINGS = {
    "parts": {
        OURS: ["2", "4", "8", "16"],
        "kvikio": [f"{backend} {count}" for backend in ("MULTI_POLL", "EASY_THREADPOOL") for count in (2, 4, 8, 16)],
        "s3dlio": ["range 2", "range 4", "range 8", "range 16", "whole 4", "whole 16"],
        "awscrt": ["5", "10", "25", "100"],
        "multi-storage-client": ["boto 1", "boto 4", "boto 8", "rust 1", "rust 4", "rust 8", "rust 16"],
    },
    "objects": {
        OURS: ["8", "16", "32", "64+1", "64+2", "128+1"],
        "kvikio": [f"{backend} {count}" for backend in ("MULTI_POLL", "EASY_THREADPOOL") for count in (8, 16, 32)],
        "s3dlio": ["many 16", "many 32", "many 64", "async 8", "async 16", "async 32"],
        "awscrt": ["whole 8", "whole 16", "whole 64", "parts 8", "parts 16", "parts 64"],
        "multi-storage-client": ["boto 1", "boto 8", "rust 1", "rust 8", "rust 16", "rust 32"],
        "litdata": ["8", "16", "64", "128"],
    },
    "shards": {OURS: ["1", "64+1", "128+1", "128+2"], "webdataset": ["default"]},
}


# ---- The server ----------------------------------------------------------------------------------


def write_bucket(bucket, mebibytes):
    """big.bin; the same bytes as objects, and as samples of shards."""
    content = random.Random(7).randbytes(MIB)
    objects = bucket / "objects"
    objects.mkdir(parents=True)
    count = mebibytes * MIB // OBJECT
    with open(bucket / "big.bin", "wb") as big:
        for shard in range(SHARDS):
            with tarfile.open(objects / f"shard-{shard}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
                for number in range(count * shard // SHARDS, count * (shard + 1) // SHARDS):
                    # Each object begins with its number, and the rest of it begins elsewhere in the random bytes.
                    at = number * 4099 % (MIB - OBJECT)
                    piece = number.to_bytes(8, "little") + content[at : at + OBJECT - 8]
                    big.write(piece)
                    (objects / name_of(number)).write_bytes(piece)
                    member = tarfile.TarInfo(name_of(number))
                    member.size = OBJECT
                    tar.addfile(member, io.BytesIO(piece))


def name_of(number):
    return f"{number:06}.bin"


def start_server(folder, cpu):
    """The process, and its port."""
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not program:
        raise SystemExit("there is no nginx")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    temporary = "".join(f"  {kind}_temp_path {kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    pathlib.Path(folder, "nginx.conf").write_text(
        "daemon off; master_process off; pid nginx.pid; error_log error.log;\n"
        "events { worker_connections 1000; }\n"
        "http {\n  access_log off; sendfile on; tcp_nopush on; keepalive_requests 10000000;\n"
        f"  open_file_cache max=100000;\n{temporary}"
        f"  server {{ listen 127.0.0.1:{port}; root .; }}\n}}\n"
    )
    server = subprocess.Popen([program, "-p", f"{folder}/", "-c", f"{folder}/nginx.conf", "-e", "error.log"],
                              preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))  # fmt: skip
    for _ in range(200):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return server, port
        time.sleep(0.05)
    server.kill()
    raise SystemExit("nginx does not start")


# ---- The peers: each gives a function that reads all there is ------------------------------------
#
# It is called with the order of the objects, and gives what it has read to take(begin, bytes), where `begin` is the first
# byte's place in big.bin.


class Task:
    def __init__(self, name, port, right):
        self.name, self.right, self.endpoint = name, right, f"http://127.0.0.1:{port}"
        self.bucket = f"{self.endpoint}/bucket"

    def ranges(self):
        return [(begin, min(PART, len(self.right) - begin)) for begin in range(0, len(self.right), PART)]


def at_a_time(count):
    """A function that calls a coroutine for each item, so many at a time."""
    import asyncio

    loop = asyncio.new_event_loop()

    def run(function, items):
        items = iter(items)

        async def worker():
            for item in items:
                await function(item)

        async def workers():
            await asyncio.gather(*(worker() for _ in range(count)))

        loop.run_until_complete(workers())

    return run


def kvikio(task, setting):
    """Its backend, and how many tasks or requests run at the same time."""
    backend, count = setting.split()
    os.environ.update(KVIKIO_REMOTE_IO_BACKEND=backend, KVIKIO_NTHREADS=count, KVIKIO_TASK_SIZE=str(PART),
                      KVIKIO_COMPAT_MODE="ON", KVIKIO_REMOTE_IO_MAX_CONCURRENT_REQUESTS=count)  # fmt: skip
    import kvikio as library
    import numpy

    if task.name == "parts":
        file = library.RemoteFile.open_http(f"{task.bucket}/big.bin")
        target = numpy.zeros(len(task.right), numpy.uint8)

        def read(order, take):
            if file.pread(target).get() == len(target):
                take(0, target.data)

    else:
        target = numpy.zeros((4 * int(count), OBJECT), numpy.uint8)

        def read(order, take):
            waiting = {}

            def finish(slot):
                number, file, future = waiting.pop(slot)
                if future.get() == OBJECT:
                    take(number * OBJECT, target[slot].data)

            for at, number in enumerate(order):
                slot = at % len(target)
                if slot in waiting:
                    finish(slot)
                file = library.RemoteFile.open_http(f"{task.bucket}/objects/{name_of(number)}", OBJECT)
                waiting[slot] = number, file, file.pread(target[slot])
            for slot in list(waiting):
                finish(slot)

    return read


def s3dlio(task, setting):
    """Its function, and how many requests run at the same time: get_range_async of each range, or get of the whole object, which
    it cuts itself; get_many of 512 objects, or get_async of each."""
    way, count = setting.split()[0], int(setting.split()[1])
    os.environ.update(S3DLIO_RANGE_CONCURRENCY=str(count), AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any",
                      AWS_ENDPOINT_URL=task.endpoint, AWS_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")  # fmt: skip
    import s3dlio as library

    big = "s3://bucket/big.bin"
    run = at_a_time(count)
    uri = lambda number: f"s3://bucket/objects/{name_of(number)}"
    if way == "whole":
        return lambda order, take: take(0, memoryview(library.get(big)))
    if way == "range":

        def read(order, take):
            async def one(range_):
                take(range_[0], memoryview(await library.get_range_async(big, *range_)))

            run(one, task.ranges())

    elif way == "async":

        def read(order, take):
            async def one(number):
                take(number * OBJECT, memoryview(await library.get_async(uri(number))))

            run(one, order)

    else:

        def read(order, take):
            for at in range(0, len(order), 512):
                numbers = {uri(number): number for number in order[at : at + 512]}
                for name, content in library.get_many(list(numbers), max_in_flight=count):
                    take(numbers[name] * OBJECT, memoryview(content))

    return read


def awscrt(task, setting):
    """parts: its target in Gbit/s, from which it takes the number of connections. objects: GetObject as one request or as one
    that may be cut into parts, and how many at the same time."""
    from awscrt.http import HttpHeaders, HttpRequest
    from awscrt.s3 import S3Client, S3RequestTlsMode, S3RequestType

    gigabits = float(setting) if task.name == "parts" else 25.0
    client = S3Client(region="us-east-1", tls_mode=S3RequestTlsMode.DISABLED, part_size=PART, throughput_target_gbps=gigabits)
    host = task.endpoint.removeprefix("http://")

    def request(path, begin, take, kind):
        name = {"operation_name": "GetObject"} if kind == S3RequestType.DEFAULT else {}
        return client.make_request(
            type=kind, request=HttpRequest("GET", path, HttpHeaders([("host", host)])),
            on_body=lambda chunk, offset: take(begin + offset, chunk), **name).finished_future  # fmt: skip

    if task.name == "parts":
        return lambda order, take: request("/bucket/big.bin", 0, take, S3RequestType.GET_OBJECT).result()
    kind = S3RequestType.DEFAULT if setting.startswith("whole") else S3RequestType.GET_OBJECT
    free = threading.Semaphore(int(setting.split()[1]))

    def read(order, take):
        futures = []
        for number in order:
            free.acquire()
            future = request(f"/bucket/objects/{name_of(number)}", number * OBJECT, take, kind)
            future.add_done_callback(lambda _: free.release())
            futures.append(future)
        for future in futures:
            future.result()

    return read


def multi_storage_client(task, setting):
    """Its S3 provider by boto3 or with its client in Rust, and how many threads read."""
    kind, count = setting.split()
    from multistorageclient import StorageClient, StorageClientConfig
    from multistorageclient.types import Range

    options = {"base_path": "bucket", "endpoint_url": task.endpoint, "region_name": "us-east-1", "max_pool_connections": 64}
    if kind == "rust":
        options["rust_client"] = {"allow_http": True}
    keys = {"type": "S3Credentials", "options": {"access_key": "any", "secret_key": "any"}}
    profile = {"storage_provider": {"type": "s3", "options": options}, "credentials_provider": keys}
    client = StorageClient(StorageClientConfig.from_dict({"profiles": {"server": profile}}, "server"))
    pool = concurrent.futures.ThreadPoolExecutor(int(count))

    def read(order, take):
        if task.name == "parts":
            done = pool.map(lambda range_: take(range_[0], client.read("big.bin", Range(*range_))), task.ranges())
        else:
            done = pool.map(lambda number: take(number * OBJECT, client.read(f"objects/{name_of(number)}")), order)
        collections.deque(done, 0)

    return read


def litdata(task, setting):
    """How many downloads run at the same time. It is asked for 512 objects at a time."""
    os.environ.update(AWS_ACCESS_KEY_ID="any", AWS_SECRET_ACCESS_KEY="any", AWS_ENDPOINT_URL=task.endpoint,
                      AWS_DEFAULT_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")  # fmt: skip
    import litdata.streaming.downloader as downloader
    from litdata.raw.dataset import StreamingRawDataset
    from litdata.raw.indexer import BaseIndexer, FileMetadata

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # It has no option of its own for that.

    class Names(BaseIndexer):
        def discover_files(self, input_dir, storage_options):
            count = len(task.right) // OBJECT
            return [FileMetadata(f"s3://bucket/objects/{name_of(number)}", OBJECT) for number in range(count)]

        def build_or_load_index(self, input_dir, cache_dir, storage_options, recompute_index=False):
            return self.discover_files(input_dir, storage_options)

    scratch = tempfile.TemporaryDirectory()
    options = {"endpoint_url": task.endpoint}
    dataset = StreamingRawDataset("s3://bucket/objects/", cache_dir=scratch.name, indexer=Names(), storage_options=options,
                                  max_concurrent_downloads=int(setting), max_prefetch=0)  # fmt: skip

    def read(order, take):
        assert scratch.name  # It lives as long as the data set.
        for at in range(0, len(order), 512):
            numbers = order[at : at + 512]
            for number, content in zip(numbers, dataset.__getitems__(numbers)):
                take(number * OBJECT, content)

    return read


def webdataset(task, setting):
    import webdataset as library

    urls = [f"{task.bucket}/objects/shard-{shard}.tar" for shard in range(SHARDS)]

    def read(order, take):
        for sample in library.WebDataset(urls, shardshuffle=False, empty_check=False):
            take(int(sample["__key__"]) * OBJECT, sample["bin"])

    return read


PEERS = {
    "kvikio": kvikio,
    "s3dlio": s3dlio,
    "awscrt": awscrt,
    "multi-storage-client": multi_storage_client,
    "litdata": litdata,
    "webdataset": webdataset,
}


def cpu_seconds():
    """Of this process and of the children that it has waited for."""
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def measure_peer(name, task_name, port, big, setting, seconds):
    right = memoryview(pathlib.Path(big).read_bytes())
    read = PEERS[name](Task(task_name, port, right), setting)
    numbers = list(range(len(right) // OBJECT))
    got, lock = 0, threading.Lock()

    def count(begin, content):
        nonlocal got
        assert task_name == "parts" or len(content) == OBJECT, f"an object has {len(content)} bytes"
        with lock:
            got += len(content)

    def compare(begin, content):
        assert content == right[begin : begin + len(content)], "the content is wrong"
        count(begin, content)

    def one_pass(take):
        nonlocal got
        random.shuffle(numbers)
        got = 0
        read(numbers, take)
        assert got == len(right), f"{got} bytes of {len(right)} have come"

    one_pass(compare)
    begin, cpu, passes = time.perf_counter(), cpu_seconds(), 0
    while time.perf_counter() - begin < seconds:
        one_pass(count)
        passes += 1
    amount = passes * (len(right) if task_name == "parts" else len(numbers))
    return {"amount": amount, "seconds": time.perf_counter() - begin, "cpu": cpu_seconds() - cpu}


# ---- Turns -----------------------------------------------------------------------------------------


def why_not(done):
    """The line of the exception, which may have more behind it; or the last line."""
    lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    return ([line for line in lines if "Error: " in line and line[:1] != " "] or lines)[-1]


def one_turn(name, task, setting, place, seconds, options):
    """What a second brings, and the CPU seconds for one of it; or why not. `place`: the port, and big.bin."""
    port, big = place
    if name == OURS:
        url = f"http://127.0.0.1:{port}/bucket/{'big.bin' if task == 'parts' else 'objects/'}"
        command = [options.build / "benchmarks/peers/remote_peer", task, url, big, str(seconds), setting]
    else:
        command = [options.python, "-B", __file__, "--one", name, task, str(port), big, setting, "--seconds", str(seconds)]
    environment = {**os.environ, "no_proxy": "127.0.0.1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment,
                              preexec_fn=lambda: os.sched_setaffinity(0, {options.cpus[1]}))  # fmt: skip
    except subprocess.TimeoutExpired:
        return "not done in 120 s"
    if done.returncode:
        return why_not(done)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    return result["amount"] / result["seconds"], result["cpu"] / result["amount"]


def best_setting(name, task, place, options):
    """The fastest one, and None; or None, and why there is none."""
    rates, reason = {}, None
    for setting in SETTINGS[task][name]:
        result = one_turn(name, task, setting, place, options.search_seconds, options)
        if isinstance(result, str):
            reason = result
        else:
            rates[setting] = result[0]
        if options.verbose:
            print(f"  {task} {name} {setting}: {result}", flush=True)
    return (max(rates, key=rates.get), None) if rates else (None, reason)


def compare(task, place, options):
    settings, results = {}, {}
    for name in SETTINGS[task]:
        if name != OURS and name not in options.peers:
            continue
        setting, reason = best_setting(name, task, place, options)
        if setting is None:
            print(f"{task:8} {name:21} left out: {reason}", flush=True)
        else:
            settings[name], results[name] = setting, []
    if OURS not in settings:
        raise SystemExit("there is nothing to compare with")
    for _ in range(options.turns):
        for name, setting in settings.items():
            result = one_turn(name, task, setting, place, options.seconds, options)
            if isinstance(result, str):
                raise SystemExit(f"{task}: {name} with {setting}: {result}")
            results[name].append(result)
    medians = {name: [statistics.median(column) for column in zip(*turns)] for name, turns in results.items()}
    unit, per, many, of = {"parts": ("GB/s", 1e9, "GB", 1e9), "objects": ("GET/s", 1, "1000 GETs", 1000),
                           "shards": ("samples/s", 1, "1000 samples", 1000)}[task]  # fmt: skip
    for name, (rate, cpu) in medians.items():
        ours = medians[OURS]
        print(f"{task:8} {name:21} {rate / per:10.5g} {unit:10} ours/it {ours[0] / rate:6.2f}   CPU {cpu * of:8.4f} s for {many:12} "
              f"it/ours {cpu / ours[1]:6.2f}   ({settings[name]})", flush=True)  # fmt: skip


def main():
    words = lambda text: text.split(",")
    cores = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--peers", type=words, default=list(PEERS))
    parser.add_argument("--tasks", type=words, default=list(SETTINGS))
    parser.add_argument("--mib", type=int, default=256, help="of the object, and of all small ones (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3, help="of a turn, at least (%(default)s)")
    parser.add_argument("--search-seconds", type=float, default=0.5, help="for each setting (%(default)s)")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--cpus", type=lambda text: [int(cpu) for cpu in text.split(",")], default=[cores[0], cores[-1]])
    parser.add_argument("--verbose", action="store_true", help="also print what each setting gives")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, task, port, big, setting = options.one
        return print(json.dumps(measure_peer(name, task, int(port), big, setting, options.seconds)))
    if options.cpus[0] == options.cpus[1]:
        raise SystemExit("the server and the client need a core each")
    if not (options.build / "benchmarks/peers/remote_peer").exists():
        raise SystemExit(f"{options.build} has no remote_peer: cmake --preset release && "
                         "cmake --build --preset release --target remote_peer")  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # The server ends too.
    with tempfile.TemporaryDirectory() as folder:
        bucket = pathlib.Path(folder, "bucket")
        write_bucket(bucket, options.mib)
        server, port = start_server(folder, options.cpus[0])
        try:
            for task in options.tasks:
                compare(task, (port, str(bucket / "big.bin")), options)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
