# SPDX-License-Identifier: Apache-2.0
"""A server of objects for tests in Python: GET with ranges and If-None-Match, and S3's listings. It checks no signatures.

    import object_server

    with object_server.serving(folder) as url:
        subprocess.run([program, "s3://bucket/train/"], env=object_server.environment(url))
"""

import contextlib
import hashlib
import http.server
import os
import pathlib
import re
import sys
import threading
import urllib.parse
import xml.sax.saxutils


class Handler(http.server.BaseHTTPRequestHandler):
    """/bucket/KEY is a file of the folder `root`; /bucket?list-type=2 lists them as S3 does."""

    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one
    disable_nagle_algorithm = True
    root = pathlib.Path()
    lock = threading.Lock()
    sent = 0  # bytes of files
    gets = lists = 0  # requests for files, and for listings

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def list_objects(self, prefix):
        with self.lock:
            Handler.lists += 1
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
        with self.lock:
            Handler.gets += 1
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

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # A program that ends, or that has sent a late request twice, closes one.
            super().handle_error(request, client_address)


@contextlib.contextmanager
def serving(root):
    """Serves the files of the folder `root`, until the end of the with statement. Its value is the server's URL."""
    Handler.root = pathlib.Path(root)
    listener = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_port}"
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def environment(url, home="/nonexistent"):
    """The variables of a program for which s3:// leads to the server."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().startswith(("aws_", "http_", "https_", "xdg_"))}
    return kept | {"HOME": str(home), "NO_PROXY": "*", "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
                   "AWS_SECRET_ACCESS_KEY": "a-secret-key"}  # fmt: skip
