# SPDX-License-Identifier: Apache-2.0
"""Makes the mutated tree and its two builds (plain and with ThreadSanitizer), and runs single test cases."""

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from . import cpp, derive

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEADERS = pathlib.Path("include/penstock")
COPIED = ["CMakeLists.txt", "CMakePresets.json", "cmake", "include", "src", "tests"]
PRESETS = {"plain": "emulated", "tsan": "tsan"}
LEFT_OUT = ["EXAMPLES", "BENCHMARKS", "IMAGES", "TRACE", "REMOTE", "GDS", "VIDEO"]  # of what the builds could have
# Folders of tests whose subject is not a header: the emulated runtime, penstock::gds, penstock::images, penstock::trace,
# penstock::video.
OTHER_SUBJECTS = {"emulation", "gds", "images", "trace", "video"}
# They have schedules of their own, and no use for ThreadSanitizer.
WEAK_MEMORY = ("penstock_weak_memory_tests", "penstock_weak_pipeline_tests")
# A program that is one test, and what it has to print: a line that comes after 5 s, and so is tested once.
WAITS, WAITS_FILE = "penstock_ending_waits", "system/endings/processes/waits.cpp"
# A program whose tests are scenarios, each a process. A child of it ends at once, so it cannot tell which mutants it reaches:
# all of these headers are taken for reached.
INSIDE, INSIDE_FILE, INSIDE_REACHES = "penstock_ending_inside", "system/endings/processes/inside.cpp", ("detail/pipeline/", "readback.hpp")
WAITS_PRINTS = re.compile("waits for a worker, for 5 s so far: .*and then the exception", re.DOTALL)

# A run hangs when it takes longer than this many seconds, and this many times as long as it did without a
# mutant; or when it has used no processor for some time, to speak of: the emulated runtime's threads look
# around a thousand times a second. Time in which it waited for a processor that others use does not count, up
# to twice the limit. One that takes more memory would go on to take all.
LEAST_LIMIT, LIMIT_FACTOR, MOST_FACTOR = 10, 12, 2
IDLE_SECONDS, IDLE_SHARE = 3, 0.02
MOST_BYTES = 3 << 30


class Failed(Exception):
    """An error that no mutant caused. The text is for the user."""


class OutOfTime(Exception):
    """The time limit was reached. The text says what is left."""


@dataclasses.dataclass(frozen=True)
class Test:
    """A test case in a test program under a configuration of `build` and `schedule`."""

    program: str
    name: str
    build: str
    schedule: str
    file: str  # its source, below tests/

    @property
    def configuration(self):
        return f"{self.build} {self.schedule}"


@dataclasses.dataclass
class Outcome:
    status: str  # "passed", or how it failed
    seconds: float
    hits: frozenset = frozenset()


def read_headers():
    folder = ROOT / HEADERS
    return [cpp.Source(str(path.relative_to(folder)), path.read_text()) for path in sorted(folder.rglob("*.hpp"))]


def is_test_source(path):
    return path.name.endswith("_test.cpp")


def common_hash():
    """Returns a hash of everything that a test program is made of, except the sources of the test cases."""
    digest = hashlib.sha256()
    for path in _copied_files():
        if not is_test_source(path):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    digest.update(pathlib.Path(__file__).with_name("schemata.hpp").read_bytes())
    return digest.hexdigest()


def test_digests():
    """Maps the source of a test, below tests/, to its digest."""
    folder = ROOT / "tests"
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*")) if path.is_file() and is_test_source(path)}  # fmt: skip


def _copied_files():
    for name in COPIED:
        path = ROOT / name
        yield from [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())


def environment():
    """Returns this process's environment, with what scripts/lib.sh finds: toolkit, .deps and ccache."""
    lines = subprocess.run(["bash", "-c", "source scripts/lib.sh && env -0"], cwd=ROOT, check=True, capture_output=True)
    return dict(pair.split("=", 1) for pair in lines.stdout.decode().split("\0") if "=" in pair)


class Programs:
    def __init__(self, folder, jobs, deadline):
        self.folder, self.jobs, self.deadline = folder.resolve(), jobs, deadline
        self.tree = self.folder / "tree"
        self.emulated = []  # programs
        self.environment = environment()
        presets = json.loads((ROOT / "CMakePresets.json").read_text())
        self._flags = {p["name"]: p.get("cacheVariables", {}).get("CMAKE_CXX_FLAGS", "")
                       for p in presets["configurePresets"]}  # fmt: skip
        self._test_environment = {p["name"]: p.get("environment", {}) for p in presets["testPresets"]}

    # ---- Building

    def write_tree(self, sources, mutants):
        """Copies the tree with the mutants. Files that would not change stay, so that little is built again."""
        wanted = {path.relative_to(ROOT): path.read_bytes() for path in _copied_files()}
        for source in sources:
            mine = [mutant for mutant in mutants if mutant.file == source.name]
            wanted[HEADERS / source.name] = derive.rewrite(source, mine).encode()
        wanted[HEADERS.parent / "penstock_mutation.hpp"] = pathlib.Path(__file__).with_name("schemata.hpp").read_bytes()
        for path in [p for p in self.tree.rglob("*") if p.is_file()]:
            if path.relative_to(self.tree) not in wanted:
                path.unlink()
        for path, content in wanted.items():
            target = self.tree / path
            if not target.exists() or target.read_bytes() != content:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)

    def build(self):
        """Builds the tests over weak memory, and every emulated test program whose subject is the headers."""
        self.emulated = []
        for file in sorted((self.tree / "tests").rglob("CMakeLists.txt")):
            if file.parent.name not in OTHER_SUBJECTS:
                self.emulated += re.findall(r"^\s*penstock_add_emulated_test\(\s*(\w+)", file.read_text(), re.MULTILINE)
        for build, preset in PRESETS.items():
            self._configure(build, preset, f"-DCMAKE_UNITY_BUILD_BATCH_SIZE={3 if self.jobs > 4 else 8}")
            alone = [*WEAK_MEMORY, WAITS] if build == "plain" else []
            self._make(build, INSIDE, *alone, *self.emulated)

    def build_core(self):
        """Compiles what the core's library has of the headers, with all mutants and without optimisation."""
        self._configure("core", "emulated", "-DPENSTOCK_BUILD_TESTS=OFF", "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O0")
        self._make("core", "penstock_core")

    def _configure(self, build, preset, *options):
        self._run(["cmake", "--preset", preset, "-B", self.folder / build, "-DCMAKE_UNITY_BUILD=ON",
                   *(f"-DPENSTOCK_BUILD_{part}=OFF" for part in LEFT_OUT),
                   f"-DCMAKE_CXX_FLAGS={self._flags[preset]} -w -D_GLIBCXX_ASSERTIONS", *options])  # fmt: skip

    def _make(self, build, *targets):
        self._run(["cmake", "--build", self.folder / build, "-j", str(self.jobs), "--target", *targets])

    def _run(self, command):
        process = subprocess.Popen(list(map(str, command)), cwd=self.tree, env=self.environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
        left = None if self.deadline is None else max(1, self.deadline - time.monotonic())
        try:
            output, _ = process.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)  # ninja deletes what is half done.
            process.communicate()
            raise OutOfTime("the test programs are not built yet") from None
        if process.returncode != 0:
            raise Failed(f"{output[-6000:]}\nfailed: {' '.join(map(str, command))}")

    # ---- Running

    def path(self, program, build):
        return next(path for path in (self.folder / build / "tests").rglob(program) if path.is_file())

    def test_cases(self, program, build):
        """Returns (name, source) of the test cases of a program. Two kinds are left out: those whose result depends on wall time, and
        those of stream 0, whose meaning depends on calls that are inlined into the user's source, and mutated ones are not."""
        listed = subprocess.run([self.path(program, build), "--list-test-names-only", "-v", "high", "~[verdict]~[zero]"],
                                capture_output=True, text=True, env=self.environment)  # fmt: skip
        for name, source in re.findall(r"^(.+?)\s*\t@(.+):\d+$", listed.stdout, re.MULTILINE):
            yield name, os.path.relpath(source, self.tree / "tests")

    def left_to_shares(self, build):
        """Returns the names of the CTest tests that CI does not run with each commit (tests/shares.cmake), without their parts."""
        labels = {test["name"]: [p["value"] for p in test["properties"] if p["name"] == "LABELS"]
                  for test in self._ctest(build)}  # fmt: skip
        return {re.sub(r"\.\d+\.", ".", name) for name, values in labels.items() if any("full" in value for value in values)}

    def scenarios(self):
        """Returns the names of the CTest tests of INSIDE, without the schedule."""
        return sorted({test["name"].rpartition(".")[0] for test in self._ctest("plain") if test["name"].startswith("ending.inside.")})

    def _ctest(self, build):
        listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=self.folder / build, capture_output=True, text=True)
        return json.loads(listed.stdout)["tests"]

    def run(self, tests, mutant, limit, hits=False):
        """Runs test cases of one program and configuration, in one process, with a mutant; 0 is none."""
        test = tests[0]
        preset = PRESETS[test.build]
        with tempfile.TemporaryDirectory() as scratch:
            output, passed_by = pathlib.Path(scratch, "output"), pathlib.Path(scratch, "hits")
            own = {"PENSTOCK_EMULATION": f"schedule={test.schedule},devices=2", "PENSTOCK_MUTANT": str(mutant)}
            own.update(self._test_environment[preset])
            if test.build == "plain":
                own["MALLOC_PERTURB_"] = "165"  # Freed memory is overwritten: reading it then shows.
            if test.build == "tsan":  # Names for addresses take a second to find, and nobody reads them.
                own["TSAN_OPTIONS"] += " symbolize=0 exitcode=66"
            if hits:
                own.update(PENSTOCK_MUTANT="-1", PENSTOCK_MUTANT_HITS=str(passed_by))
            names = ",".join(re.sub(r'([\\,\["*])', r"\\\1", each.name) for each in tests)
            command = [self.path(test.program, test.build)]
            if test.program == INSIDE:
                command += test.name.split(".")[2:]
            elif test.program != WAITS:
                command += ["-a", "-w", "NoTests", names]
            begin = time.monotonic()
            with output.open("wb") as file:
                process = subprocess.Popen(command, env={**self.environment, **own}, cwd=scratch, stdout=file,
                                           stderr=file, stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
                status = _wait(process, begin, limit, limit if test.program in (WAITS, INSIDE) else IDLE_SECONDS)
            seconds = time.monotonic() - begin
            if status is None:
                printed = output.read_text(errors="replace")
                status = _explain(process.returncode, printed)
                if test.program == WAITS and status == "passed" and not WAITS_PRINTS.search(printed):
                    status = "it does not say that it waits"
            numbers = passed_by.read_text().split() if passed_by.exists() else ()
            return Outcome(status, seconds, frozenset(map(int, numbers)))


def _wait(process, begin, limit, most_idle):
    """Returns None if the process ended by itself, else why it was ended."""
    pause, why = 0.005, None
    busy_until, busy_then, starved, waited_then = time.monotonic(), 0.0, 0.0, 0.0
    while why is None:
        try:
            process.wait(pause)
            return None
        except subprocess.TimeoutExpired:
            pause = min(2 * pause, 0.2)
        now, (used, waited, size) = time.monotonic(), _usage(process.pid)
        starved, waited_then = starved + max(0, waited - waited_then), waited
        if used + starved - busy_then > IDLE_SHARE * (now - busy_until):
            busy_until, busy_then = now, used + starved
        if size > MOST_BYTES:
            why = "memory"
        elif now - begin > min(limit + starved, MOST_FACTOR * limit) or now - busy_until > most_idle:
            why = "hang"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return why


def _usage(process):
    """Returns the seconds of processor time, the seconds that its present threads have waited for a processor, and the bytes of memory."""
    waited = 0
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        for task in os.scandir(f"/proc/{process}/task"):
            waited += int(pathlib.Path(task.path, "schedstat").read_text().split()[1])
    except (OSError, IndexError):
        return 0, 0, 0  # It, or one of its threads, has just ended.
    ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
    return ticks / os.sysconf("SC_CLK_TCK"), waited / 1e9, pages * os.sysconf("SC_PAGESIZE")


def _explain(code, output):
    """Says in a few words how a test program ended."""
    if code == 0:
        return "passed"
    report = re.search(r"WARNING: ThreadSanitizer: ([^(\n]+)", output)
    if report:
        return report[1].strip()
    leak = re.search(r'" leaks: (.+)', output)
    failure = re.search(r"FAILED:\n(?:\s*(.+))", output) or re.search(r"(due to unexpected exception.*)", output)
    fatal = re.search(r"due to a fatal error condition:\n(?:.*\n)*?\s*(SIG\w+)", output)
    if fatal or code < 0:
        return fatal[1] if fatal else signal.Signals(-code).name
    if failure:
        return failure[1].strip()
    return "leak" if leak else f"exit status {code}"
