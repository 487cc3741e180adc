# SPDX-License-Identifier: Apache-2.0
"""The peers of benchmarks/peers/run: what they are, how they are installed, and how their programs are started."""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

# Of each: its name in the table; its virtual environment; PyPI's packages; what to import to see whether it is there;
# Debian's packages; why it has no part in some tasks.
PEERS = {
    "penstock": {"title": "penstock"},
    "torch": {"title": "PyTorch DataLoader", "venv": "torch", "packages": ["torch", "torchvision"],
              "imports": ["torch", "torchvision"]},
    "spdl": {"title": "SPDL", "venv": "spdl", "packages": ["spdl-io", "spdl-core", "numpy"], "imports": ["spdl.io"],
             "debian": ["libavfilter8", "libavdevice59"]},
    "dali": {"title": "DALI, CPU operators", "venv": "dali", "packages": ["nvidia-dali-cuda120", "numpy"],
             "imports": ["nvidia.dali"]},
    "ffcv": {"title": "FFCV", "venv": "torch", "packages": ["ffcv"], "imports": ["ffcv"], "no_isolation": True,
             "before": ["torch", "torchvision", "numba", "opencv-python-headless", "pandas", "tqdm", "terminaltables"],
             "debian": ["pkg-config", "libturbojpeg0-dev", "libopencv-dev"]},
    "tf": {"title": "tf.data", "venv": "tensorflow", "packages": ["tensorflow-cpu"], "imports": ["tensorflow"]},
    "grain": {"title": "Grain", "venv": "grain", "packages": ["grain", "array_record", "numpy", "opencv-python-headless"],
              "imports": ["grain", "array_record"]},
    "webdataset": {"title": "WebDataset", "venv": "torch", "packages": ["torch", "torchvision", "webdataset"],
                   "imports": ["webdataset"]},
    "litdata": {"title": "LitData", "venv": "torch", "packages": ["torch", "torchvision", "litdata"],
                "imports": ["litdata"]},
    "tbb": {"title": "oneTBB"},
}  # fmt: skip
PROGRAMS = {"penstock": "penstock_peer", "tbb": "tbb_peer"}


class Missing(Exception):
    """This peer cannot be started here, and why."""


class Places:
    """Where the peers are."""

    def __init__(self, venvs, build, python=None):
        self.venvs, self.build, self.python = pathlib.Path(venvs), pathlib.Path(build), python

    def command(self, peer, task, data):
        if peer in PROGRAMS:
            program = self.build / "benchmarks/peers" / PROGRAMS[peer]
            if not program.exists():
                raise Missing(f"not built: {program}")
            return [program, task, data]
        return [self.interpreter(peer), "-B", HERE / "peer.py", peer, task, data]

    def interpreter(self, peer):
        """A Python that has the peer."""
        about = PEERS[peer]
        if "venv" not in about:
            return self.python or sys.executable
        for python in (self.venvs / about["venv"] / "bin/python", self.python):
            if python and shutil.which(python) and self.has(python, about["imports"]):
                return python
        raise Missing("not installed: benchmarks/peers/run --install")

    @staticmethod
    def has(python, names):
        """Without importing them, which takes seconds."""
        find = "import importlib.util, sys; sys.exit(not all(importlib.util.find_spec(n) for n in sys.argv[1:]))"
        return subprocess.run([python, "-c", find, *names], stderr=subprocess.DEVNULL).returncode == 0


def install_one(peer, places):
    """An error, or nothing."""
    about = PEERS[peer]
    missing = [name for name in about.get("debian", []) if not debian_has(name)]
    if missing and (os.getuid() != 0 or not shutil.which("apt-get")):
        return f"needs Debian's {' '.join(missing)}"
    if missing:
        subprocess.run(["apt-get", "update", "-q"], stdout=subprocess.DEVNULL)
        done = subprocess.run(["apt-get", "install", "-q", "-y", "--no-install-recommends", *missing],
                              stdout=subprocess.DEVNULL, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})  # fmt: skip
        if done.returncode:
            return f"apt-get could not install {' '.join(missing)}"
    folder = places.venvs / about["venv"]
    if not (folder / "bin/python").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for packages in (about.get("before", []), about["packages"]):
        isolation = ["--no-build-isolation", "--no-deps"] if about.get("no_isolation") and packages is about["packages"] else []
        if packages and subprocess.run([*pip, *isolation, *packages]).returncode:
            return f"pip could not install {' '.join(packages)}"
    return ""


def debian_has(package):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Status}", package], capture_output=True, text=True)
    return done.stdout == "install ok installed"


def install(names, places):
    """Prints what was installed and what could not be. The number of the latter."""
    failed = 0
    for peer in names:
        if "venv" not in PEERS[peer]:
            continue
        print(f"installing {PEERS[peer]['title']} ...", flush=True)
        error = install_one(peer, places)
        failed += bool(error)
        print(f"  {error or 'done'}", flush=True)
    return failed


def build(folder, root):
    """penstock's program, and what makes the images, optimised and over the emulated runtime."""
    lines = f"""
        . scripts/lib.sh
        cmake -S . -B '{folder}' -G Ninja -DCMAKE_BUILD_TYPE=Release -DPENSTOCK_WITH_CUDA=OFF -DPENSTOCK_WITH_EMULATION=ON \
          -DPENSTOCK_BUILD_IMAGES=ON -DPENSTOCK_BUILD_TESTS=OFF -DPENSTOCK_BUILD_EXAMPLES=ON \
          -DPENSTOCK_BUILD_BENCHMARKS=ON -DPENSTOCK_BUILD_TRACE=OFF -DPENSTOCK_BUILD_REMOTE=OFF >'{folder}.log' 2>&1 &&
        cmake --build '{folder}' --target penstock_peer tbb_peer make_images >>'{folder}.log' 2>&1
    """
    pathlib.Path(folder).parent.mkdir(parents=True, exist_ok=True)
    print(f"building in {folder} ...", flush=True)
    if subprocess.run(["bash", "-c", lines], cwd=root).returncode:
        raise SystemExit(f"run: the build failed: see {folder}.log")
