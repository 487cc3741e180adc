#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Chromium without a window, driven over its DevTools protocol, with nothing but the standard library.

    with Browser() as browser:
        browser.open(path)
        browser.evaluate("document.title")

The protocol's messages are JSON, each ended by a NUL byte, over two pipes. The calls here wait for
their replies; what the page says meanwhile (console, exceptions, requests) is kept in `complaints` and
`requests`. A browser that says nothing for a minute fails the call.
"""
import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chromium-headless-shell"]
SILENCE = 60  # seconds
WIDTH, HEIGHT = 1440, 900


def find_browser():
    """Path of a browser, of $CHROMIUM or of those that are usual; None without one."""
    for name in filter(None, [os.environ.get("CHROMIUM"), *NAMES]):
        path = shutil.which(name)
        if path:
            return path
    return None


class Browser:
    def __init__(self):
        self.complaints, self.requests = [], []
        self.session, self.received, self.next_id = None, b"", 0
        self.loaded = False

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="penstock_browser_", ignore_cleanup_errors=True)
        # Above the numbers that the browser takes: 3 to read commands from, 4 to write replies to.
        read, self.commands = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in os.pipe())
        self.replies, write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in os.pipe())
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write}', "browser", find_browser(), *self.options()],
            pass_fds=[read, write], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read)
        os.close(write)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(WIDTH, HEIGHT)
        return self

    def options(self):
        options = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}",
                   "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
                   "--disable-extensions", "--hide-scrollbars"]
        return options + (["--no-sandbox"] if os.getuid() == 0 or os.environ.get("CI") else [])

    def __exit__(self, *_):
        try:
            self.session = None
            self.call("Browser.close")
        except (OSError, RuntimeError, TimeoutError):
            self.process.kill()
        self.process.wait()
        os.close(self.commands)
        os.close(self.replies)
        self.profile.cleanup()

    # ---- The protocol --------------------------------------------------------------------------------

    def call(self, method, **parameters):
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.commands, data):]
        while True:
            reply = self.receive()
            if reply.get("id") == self.next_id:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]
            self.note(reply)

    def receive(self):
        while b"\0" not in self.received:
            if not select.select([self.replies], [], [], SILENCE)[0]:
                raise TimeoutError(f"the browser said nothing for {SILENCE} s")
            data = os.read(self.replies, 1 << 20)
            if not data:
                raise RuntimeError("the browser has ended")
            self.received += data
        message, self.received = self.received.split(b"\0", 1)
        return json.loads(message)

    def note(self, event):
        parameters = event.get("params", {})
        said = None
        if event.get("method") == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            said = details.get("exception", {}).get("description") or details["text"]
        elif event.get("method") == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            said = " ".join(str(one.get("value", one.get("description"))) for one in parameters["args"])
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            said = parameters["entry"]["text"]
        elif event.get("method") == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif event.get("method") == "Page.loadEventFired":
            self.loaded = True
        if said and "willReadFrequently" not in said:  # only tests read pixels back
            self.complaints.append(said)

    # ---- The page ------------------------------------------------------------------------------------

    def open(self, path):
        self.complaints, self.requests, self.loaded = [], [], False
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        while not self.loaded:
            self.note(self.receive())

    def evaluate(self, expression):
        """The value of a JavaScript expression; of a promise, once it is there."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", expression))
        return result["result"].get("value")

    def resize(self, width, height, ratio=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=ratio,
                  mobile=False)

    def prefer(self, scheme, motion="no-preference"):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme},
                                                          {"name": "prefers-reduced-motion", "value": motion}])

    def screenshot(self, path=None):
        image = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        if path:
            pathlib.Path(path).write_bytes(image)
        return image

    # ---- The user's hands ----------------------------------------------------------------------------

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def move(self, x, y):
        self.mouse("mouseMoved", x, y)

    def click(self, x, y, count=1):
        self.move(x, y)
        for number in range(1, count + 1):
            self.mouse("mousePressed", x, y, button="left", clickCount=number)
            self.mouse("mouseReleased", x, y, button="left", clickCount=number)

    def drag(self, start, end, shift=False):
        more = {"button": "left", "buttons": 1, "modifiers": 8 if shift else 0}
        self.mouse("mousePressed", *start, clickCount=1, **more)
        for part in (0.25, 0.5, 0.75, 1):
            self.mouse("mouseMoved", *(a + (b - a) * part for a, b in zip(start, end)), **more)
        self.mouse("mouseReleased", *end, clickCount=1, **more)

    def wheel(self, x, y, delta):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=delta)

    def key(self, key, shift=False):
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        keys = {"key": key, "modifiers": 8 if shift else 0}
        if key == "Enter":
            keys.update(code="Enter", windowsVirtualKeyCode=13)
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **keys)
        self.call("Input.dispatchKeyEvent", type="keyUp", **keys)

    def type(self, text):
        for letter in text:
            self.key(letter)
