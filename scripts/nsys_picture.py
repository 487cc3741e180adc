#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nsys_picture.py [OPTION...] REPORT... PICTURE.png: draws the timeline of a report as nsys-ui shows it, from the beginning of one range
to the end of another. It draws several reports in one view.

  --from NAME[:PAYLOAD][#NUMBER]   the first range of that name, or the first with that payload; #1 is the next one. Default: the
                                   whole report
  --to NAME[:PAYLOAD][#NUMBER]     the last range; default: that of --from
  --margin FRACTION       added on both sides, as a fraction of the time between; default 0.03
  --height PIXELS         the height of the window, which hides the rows below it; default 1000
  --keep-gpu-closed       do not open the device's row (`CUDA HW`), which nsys-ui shows closed
  --nsight FOLDER         default: .deps/nsight, of scripts/setup nsys

It starts an X server of its own, so it needs no display, but it needs the packages xvfb, openbox, xdotool, imagemagick,
libxcb-icccm4, libxcb-keysyms1 and libgl1-mesa-dri. pngquant makes the picture smaller if it is installed. The script clicks at
fixed places, which are those of nsys-ui 2023.4.4.
"""

import argparse
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH = 1600
# Where nsys-ui 2023.4.4 has what, in a window of that width.
EXPLORER_CLOSE = (353, 36)
AXIS = (218, 1568)  # from the report's begin to its end
TOP, LEFT, RIGHT = 86, 17, 1582
GPU_ARROW = (23, 121)
APPLY = (329, 69)  # of the reports that are one view
BLANK_FROM_BOTTOM = 90
# As if the user had answered nsys-ui's first question, and chosen what several reports are opened for.
SETTINGS = """[CorePlugin.Privacy]
AskedFor_NVIDIA%20Nsight%20Systems_=HasAsked
CorePlugin.AllowAnalytics=false

[QuadDPlugin.Behavior]
QuadDPlugin.MultipleReportsOpenMode=createMultiReportViewMode
"""
MAXIMIZED = """<openbox_config xmlns="http://openbox.org/3.4/rc"><applications>
<application class="*"><decor>no</decor><maximized>yes</maximized></application>
</applications></openbox_config>"""


def fail(what):
    sys.exit(f"nsys_picture.py: {what}")


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        fail(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-400:]}")
    return done.stdout


class Times:
    """The times of the ranges of a report, in nanoseconds from its begin."""

    def __init__(self, nsight, report, folder):
        database = pathlib.Path(folder, f"{report.stem}.sqlite")
        run(nsight / "usr/bin/nsys", "export", "--type=sqlite", "--lazy=false", "--force-overwrite=true", f"--output={database}", report)
        self.database = sqlite3.connect(database)
        (self.duration,) = self.database.execute("select max(duration) from ANALYSIS_DETAILS").fetchone()

    def of(self, text, which):
        words, _, number = text.partition("#")
        name, _, payload = words.partition(":")
        if not (number or "0").isdecimal() or not (payload or "0").lstrip("-").isdecimal():
            fail(f"{text} is not NAME[:PAYLOAD][#NUMBER], whose payload and number are whole numbers")
        rows = self.database.execute(
            """select NVTX_EVENTS.start, NVTX_EVENTS.end from NVTX_EVENTS left join StringIds on StringIds.id = textId
               where coalesce(text, value) = ? and NVTX_EVENTS.end is not null and (? = '' or coalesce(uint64Value, int64Value) = ?)
               order by NVTX_EVENTS.start""", (name, payload, payload and int(payload))).fetchall()  # fmt: skip
        if len(rows) <= int(number or 0):
            fail(f"the report has no range {text}")
        return rows[int(number or 0)][which]


class Screen:
    """Runs an X server with a window manager and nsys-ui, which end with it."""

    def __init__(self, option, folder):
        self.height, self.children = option.height, []
        read, write = os.pipe()
        self.start("Xvfb", "-displayfd", write, "-screen", "0", f"{WIDTH}x{option.height}x24", pass_fds=[write])
        os.close(write)
        self.environment = {**os.environ, "DISPLAY": f":{os.read(read, 10).decode().strip()}", "HOME": folder, "XDG_RUNTIME_DIR": folder,
                            "XDG_CONFIG_HOME": f"{folder}/.config", "LIBGL_ALWAYS_SOFTWARE": "1"}  # fmt: skip
        settings = pathlib.Path(folder, ".config/NVIDIA Corporation/NVIDIA Nsight Systems.ini")
        settings.parent.mkdir(parents=True)
        settings.write_text(SETTINGS)
        pathlib.Path(folder, "openbox.xml").write_text(MAXIMIZED)
        self.start("openbox", "--config-file", f"{folder}/openbox.xml", env=self.environment)
        host = option.nsight / "usr/lib/nsight-systems/host-linux-x64"
        self.start(host / "nsys-ui.bin", *(option.reports if len(option.reports) == 1 else []),
                   env={**self.environment, "NV_AGORA_PATH": str(host), "QT_PLUGIN_PATH": str(host / "Plugins"), "LD_LIBRARY_PATH": str(host)})  # fmt: skip

    def start(self, *command, **options):
        self.children.append(subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in reversed(self.children):
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def wait_for_window(self):
        for _ in range(240):
            found = subprocess.run(["xdotool", "search", "--name", "^NVIDIA Nsight Systems 20"], env=self.environment, capture_output=True, text=True).stdout.split()  # fmt: skip
            if found:
                return
            if self.children[-1].poll() is not None:
                fail("nsys-ui has ended: what does `nsys-ui REPORT` say on a display?")
            time.sleep(0.25)
        fail("nsys-ui shows no window within a minute")

    def do(self, *words):
        run("xdotool", *words, env=self.environment)

    def click(self, at):
        self.do("mousemove", *at, "click", 1)

    def drag(self, begin, end):
        self.do("mousemove", *begin, "mousedown", 1)
        for part in (0.3, 0.6, 0.9, 1):
            time.sleep(0.15)
            self.do("mousemove", *(round(one + part * (other - one)) for one, other in zip(begin, end)))
        time.sleep(0.3)
        self.do("mouseup", 1)

    def image(self, path):
        run("import", "-window", "root", path, env=self.environment)
        return pathlib.Path(path).read_bytes()

    def settle(self, folder):
        """Waits until two pictures in a row are the same."""
        last = b""
        for _ in range(40):
            time.sleep(0.7)
            now = self.image(f"{folder}/now.png")
            if now == last:
                return
            last = now


def last_row(path, height):
    """Returns where the last row ends. Below it the column of names is white."""
    text = run("convert", path, "-crop", f"1x{height - TOP - BLANK_FROM_BOTTOM}+{LEFT + 12}+{TOP}", "-depth", "8", "txt:-")
    dark = [int(line.split(",")[1].split(":")[0]) for line in text.splitlines()[1:] if "#FFFFFF" not in line]
    return TOP + max(dark, default=100) + 1


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("reports", nargs="+", type=lambda word: pathlib.Path(word).absolute())
    parser.add_argument("picture", type=pathlib.Path)
    parser.add_argument("--from", dest="begin")
    parser.add_argument("--to", dest="end")
    parser.add_argument("--margin", type=float, default=0.03)
    parser.add_argument("--height", type=int, default=1000)
    parser.add_argument("--keep-gpu-closed", action="store_true")
    parser.add_argument("--nsight", type=lambda word: pathlib.Path(word).absolute(), default=ROOT / ".deps/nsight")
    option = parser.parse_args()
    for report in option.reports:
        if not report.is_file():
            fail(f"there is no report {report}")
    if not option.picture.absolute().parent.is_dir():
        fail(f"there is no folder for {option.picture}")
    for tool in ("Xvfb", "openbox", "xdotool", "import", "convert"):
        if not shutil.which(tool):
            fail(f"{tool} is not installed: see --help for the packages")
    for tool in ("bin/nsys", "lib/nsight-systems/host-linux-x64/nsys-ui.bin"):
        if not (option.nsight / "usr" / tool).exists():
            fail(f"there is no {option.nsight / 'usr' / tool}: scripts/setup nsys gets it, --nsight names another folder")
    with tempfile.TemporaryDirectory() as folder:
        # Before anything is drawn: nsys-ui would show its error in place of a timeline.
        every = [Times(option.nsight, report, folder) for report in option.reports]
        draw(option, every[0], folder)
    if shutil.which("pngquant"):
        run("pngquant", "--force", "--skip-if-larger", "--output", option.picture, 64, option.picture)
    print(f"{option.picture}: {option.picture.stat().st_size} bytes")


def draw(option, times, folder):
    span = (times.of(option.begin, 0), times.of(option.end or option.begin, 1)) if option.begin else None
    with Screen(option, folder) as screen:
        screen.wait_for_window()
        screen.settle(folder)
        if len(option.reports) > 1:  # On the command line, each would have a tab of its own.
            screen.do("key", "ctrl+o")
            screen.settle(folder)
            screen.do("type", "--delay", "5", " ".join(f'"{report}"' for report in option.reports))
            screen.do("key", "Return")
            screen.settle(folder)
        screen.click(EXPLORER_CLOSE)
        screen.settle(folder)
        if len(option.reports) > 1:
            screen.click(APPLY)
        screen.settle(folder)
        screen.drag((800, option.height // 2 + 22), (800, option.height - 40))  # what is below the timeline
        if not option.keep_gpu_closed and len(option.reports) == 1:  # In one view of several it is a row of each process.
            screen.click(GPU_ARROW)
        screen.settle(folder)
        if span:
            begin, end = span
            margin = option.margin * (end - begin)
            pixels = [round(AXIS[0] + max(0, min(1, at / times.duration)) * (AXIS[1] - AXIS[0])) for at in (begin - margin, end + margin)]
            blank = option.height - BLANK_FROM_BOTTOM
            screen.drag((pixels[0], blank), (pixels[1], blank))
            screen.do("key", "shift+z")
        screen.do("mousemove", WIDTH - 4, option.height - 4)  # The pointer's time is not to be seen.
        screen.settle(folder)
        screen.image(f"{folder}/now.png")
        bottom = last_row(f"{folder}/now.png", option.height)
        run("convert", f"{folder}/now.png", "-crop", f"{RIGHT - LEFT}x{bottom - TOP}+{LEFT}+{TOP}", "+repage", option.picture)


if __name__ == "__main__":
    main()
