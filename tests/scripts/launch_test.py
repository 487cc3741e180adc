#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""launch_test.py SCRIPTS: scripts/launch from outside, with ranks that are a few lines of shell or Python."""

import contextlib
import os
import pathlib
import pty
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import unittest

LAUNCH = str(pathlib.Path(sys.argv.pop(1)).resolve() / "launch")
LONGEST = 60  # seconds that anything here may take
LIVES_ON = "trap '' TERM INT HUP QUIT; while true; do sleep 0.05; done"

COUNTS_SIGNALS = """
import signal, time
came = []
signal.signal({}, lambda *_: came.append(1))
print('ready', flush=True)
while not came: time.sleep(0.02)
time.sleep(0.2)
print('got it' * len(came))
"""


class Job:
    """One scripts/launch, whose processes are known by a variable of their environment."""

    def __init__(self, *words, **settings):
        self.mark = secrets.token_hex(8)
        environment = {**os.environ, "LAUNCH_TEST": self.mark, **settings.pop("environment", {})}
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
        self.process = subprocess.Popen([LAUNCH, *words], env=environment, **settings)

    def processes(self):
        """Those that live: of a process that has ended and waits for its parent nothing is to be read."""
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"LAUNCH_TEST={self.mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return found

    def keeper(self):
        return int(pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text())

    def end(self):
        out, err = self.process.communicate(timeout=LONGEST)
        return self.process.returncode, out, err


def eventually(condition, seconds=LONGEST):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class LaunchTest(unittest.TestCase):
    def launch(self, *words, **settings):
        job = Job(*words, **settings)
        result = job.end()
        self.assertEqual(job.processes(), [], "processes are left")
        return result

    def wait_for(self, job, text, times):
        """Until so many lines with the text have come; the lines until then."""
        lines = []
        while sum(text in line for line in lines) < times:
            lines.append(job.process.stdout.readline())
            self.assertNotEqual(lines[-1], b"", f"ended before {text}: {lines}")
        return lines

    # ---- Who the ranks are

    def test_ranks_know_who_they_are(self):
        program = (
            "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT "
            "$TORCHELASTIC_RUN_ID $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS"
        )
        around = {"RANK": "7", "WORLD_SIZE": "9"}
        status, out, err = self.launch("-n", "3", "bash", "-c", program, environment=around)
        self.assertEqual((status, err), (0, b""))
        lines = sorted(out.decode().splitlines())
        port, run = lines[0].split()[6:8]
        self.assertEqual(lines, [f"[{n}] {n} 3 {n} 3 127.0.0.1 {port} {run} 0 0" for n in range(3)])
        for one in (int(port), int(port) + 1):
            with socket.socket() as free:
                free.bind(("127.0.0.1", one))
        again = self.launch("-n", "1", "bash", "-c", "echo $TORCHELASTIC_RUN_ID")[1].decode().split()[1]
        self.assertNotEqual(again, run)

    def test_each_job_has_a_secret_of_its_own(self):
        around = {"PENSTOCK_JOB_SECRET": "that of another job", "PENSTOCK_JOB_SECRET_FILE": "/nowhere"}
        words = "-n", "3", "bash", "-c", "echo $PENSTOCK_JOB_SECRET ${PENSTOCK_JOB_SECRET_FILE-none}"
        jobs = [self.launch(*words, environment=around) for _ in range(2)]
        secrets_of_jobs = set()
        for status, out, err in jobs:
            self.assertEqual((status, err), (0, b""))
            said = {line.split(" ", 1)[1] for line in out.decode().splitlines()}
            self.assertEqual(len(said), 1, "the ranks of a job have the same")
            self.assertRegex(said := said.pop(), "^[0-9a-f]{64} none$")
            secrets_of_jobs.add(said)
        self.assertEqual(len(secrets_of_jobs), 2)

    # ---- What they print

    def test_lines_stay_whole(self):
        program = (
            "import os, sys\n"
            "for i in range(2000):\n"
            "    for piece in (b'%d ' % i, b'x' * 100, b'.\\n'): os.write(1 + i % 2, piece)\n"
        )
        status, out, err = self.launch("-n", "4", sys.executable, "-c", program)
        self.assertEqual(status, 0)
        for text, odd in ((out, 0), (err, 1)):
            lines = text.split(b"\n")[:-1]
            for rank in range(4):
                of_rank = [line for line in lines if line.startswith(b"[%d] " % rank)]
                self.assertEqual(of_rank, [b"[%d] %d %s." % (rank, i, b"x" * 100) for i in range(odd, 2000, 2)])
            self.assertEqual(len(lines), 4000)

    def test_any_bytes_pass(self):
        program = (
            "import os\n"
            "os.write(1, bytes(range(256)) + b'\\n\\n' + b'y' * 300000 + b'\\n')\n"
            "os.write(2, b'no end')"
        )
        _, out, err = self.launch("-n", "1", sys.executable, "-c", program)
        first, second = bytes(range(256)).split(b"\n")
        self.assertEqual(out.split(b"\n"), [b"[0] " + first, b"[0] " + second, b"[0] ", b"[0] " + b"y" * 300000, b""])
        self.assertEqual(err, b"[0] no end\n")

    def test_a_line_without_end_takes_no_memory(self):
        status, out, _ = self.launch("-n", "1", "bash", "-c", "head -c 5000000 /dev/zero")
        self.assertEqual((status, out.count(b"\0")), (0, 5000000))
        self.assertLess(max(map(len, out.split(b"\n"))), 1_200_000)

    def test_nobody_reads(self):
        reader, writer = os.pipe()
        job = Job("-n", "2", "yes", stdout=writer)
        os.close(writer)
        os.read(reader, 100)
        os.close(reader)
        self.assertEqual(job.end()[0], 141)
        self.assertEqual(job.processes(), [])

    def test_output_that_stands_still_stops_no_signal(self):
        reader, writer = os.pipe()  # which nobody reads
        for number in (signal.SIGTERM, signal.SIGKILL):
            job = Job("-n", "2", "--grace", "0.2", "cat", "/dev/zero", stdout=writer)
            self.assertTrue(eventually(lambda: len(job.processes()) == 4))
            time.sleep(0.3)
            pages = int(pathlib.Path(f"/proc/{job.keeper()}/statm").read_text().split()[1])
            self.assertLess(pages * os.sysconf("SC_PAGE_SIZE"), 40 << 20)
            job.process.send_signal(number)
            self.assertTrue(eventually(lambda: len(job.processes()) < (3 if number == signal.SIGTERM else 1)), number)
            job.process.kill()
            job.process.wait()
            self.assertTrue(eventually(lambda: job.processes() == []), number)
            job.process.stderr.close()
        os.close(reader)
        os.close(writer)

    # ---- How it ends

    def test_the_first_failure_ends_all(self):
        begin = time.monotonic()
        program = "if [ $RANK = 1 ]; then sleep 0.2; exit 7; fi; trap 'exit 3' TERM; sleep 100 & setsid sleep 100 & wait"
        status, _, err = self.launch("-n", "3", "--grace", "100", "bash", "-c", program)
        self.assertEqual(status, 7)
        self.assertRegex(err.decode(), r"^launch: rank 1 \(process \d+\) ended with exit status 7; the others are ended\n$")
        self.assertLess(time.monotonic() - begin, 50)

    def test_a_signal_is_128_and_its_number(self):
        status, _, err = self.launch("-n", "2", "bash", "-c", "if [ $RANK = 0 ]; then kill -SEGV $$; fi; sleep 100")
        self.assertEqual(status, 128 + signal.SIGSEGV)
        self.assertIn(b"rank 0 ", err)
        self.assertIn(b"was ended by signal 11 (Segmentation fault)", err)

    def test_who_does_not_end_is_killed(self):
        begin = time.monotonic()
        program = f'if [ $RANK = 0 ]; then sleep 0.3; exit 9; fi; setsid -f bash -c "{LIVES_ON}"; {LIVES_ON}'
        self.assertEqual(self.launch("-n", "2", "--grace", "0.5", "bash", "-c", program)[0], 9)
        self.assertGreater(time.monotonic() - begin, 0.7)

    def test_who_is_stopped_ends(self):
        begin = time.monotonic()
        program = "if [ $RANK = 0 ]; then sleep 0.3; exit 9; fi; kill -STOP $$; sleep 100"
        self.assertEqual(self.launch("-n", "2", "--grace", "100", "bash", "-c", program)[0], 9)
        self.assertLess(time.monotonic() - begin, 50)

    def test_what_ranks_leave_behind_is_ended(self):
        program = f'setsid -f sleep 100; setsid -f bash -c "{LIVES_ON}"; echo done'
        status, out, _ = self.launch("-n", "2", "--grace", "0.3", "bash", "-c", program)
        self.assertEqual((status, out.count(b"done")), (0, 2))

    def test_ranks_may_end_at_different_times(self):
        status, out, err = self.launch("-n", "3", "bash", "-c", "sleep 0.$RANK; echo done")
        self.assertEqual((status, out.count(b"done"), err), (0, 3, b""))

    def test_signals_are_passed_on_once(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            job = Job("-n", "2", "--restarts", "3", sys.executable, "-c", COUNTS_SIGNALS.format(int(number)))
            self.wait_for(job, b"ready", 2)
            job.process.send_signal(number)
            status, out, _ = job.end()
            self.assertEqual((status, out.count(b"got it")), (0, 2), f"not once to each: {number}")
            job = Job("-n", "2", "--restarts", "3", "bash", "-c", "echo ready; sleep 100")
            self.wait_for(job, b"ready", 2)
            job.process.send_signal(number)
            self.assertEqual(job.end()[0], 128 + number)
            self.assertEqual(job.processes(), [])

    def test_the_terminals_signal_comes_once(self):
        process, terminal = pty.fork()
        if process == 0:
            os.execl(LAUNCH, LAUNCH, "-n", "2", sys.executable, "-c", COUNTS_SIGNALS.format(int(signal.SIGINT)))
        text = b""
        while text.count(b"ready") < 2:
            text += os.read(terminal, 1000)
        os.write(terminal, b"\x03")
        with contextlib.suppress(OSError):  # its end
            while True:
                text += os.read(terminal, 1000)
        self.assertEqual((os.waitpid(process, 0)[1], text.count(b"got it")), (0, 2))
        os.close(terminal)

    def test_a_signal_that_is_ignored_stays_so(self):
        ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
        job = Job("-n", "1", "bash", "-c", "echo ready; sleep 0.5", preexec_fn=ignore)
        self.wait_for(job, b"ready", 1)
        job.process.send_signal(signal.SIGHUP)
        self.assertEqual(job.end()[0], 0)

    def test_no_process_is_left_when_the_launcher_is_killed(self):
        for victims in ("launcher", "keeper", "both"):
            for program in (LIVES_ON, "exec sleep 100"):
                if victims == "both" and program == LIVES_ON:
                    continue  # Nobody is left who could: only the ranks themselves are killed then.
                daemon = f'setsid -f bash -c "echo ready; {LIVES_ON}"' if program == LIVES_ON else "true"
                job = Job("-n", "2", "--grace", "0.3", "bash", "-c", f"{daemon}; echo ready; {program}")
                self.wait_for(job, b"ready", 4 if program == LIVES_ON else 2)
                keeper = job.keeper()
                if victims != "keeper":
                    job.process.kill()
                if victims != "launcher":
                    os.kill(keeper, signal.SIGKILL)
                self.assertTrue(eventually(lambda: job.processes() == []), (victims, program))
                self.assertEqual(job.end()[0], 137 if victims == "keeper" else -9)

    # ---- Restarts

    def test_restarts(self):
        program = (
            "echo $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $MASTER_PORT $TORCHELASTIC_RUN_ID; "
            "if [ $TORCHELASTIC_RESTART_COUNT = 2 ]; then exit 0; fi; "
            "if [ $RANK = 1 ]; then exit 5; fi; sleep 100"
        )
        status, out, err = self.launch("-n", "2", "--restarts", "3", "bash", "-c", program)
        self.assertEqual(status, 0)
        rank_1 = [line.split()[1:] for line in out.decode().splitlines() if line.startswith("[1] ")]
        self.assertEqual([line[:2] for line in rank_1], [["0", "3"], ["1", "3"], ["2", "3"]])
        self.assertEqual(len({line[3] for line in rank_1}), 1)
        self.assertIn(b"launch: restart 2 of 3\n", err)
        self.assertEqual(self.launch("-n", "2", "--restarts", "1", "bash", "-c", program)[0], 5)

    # ---- Wrong arguments

    def test_wrong_arguments(self):
        for words, text in [
            ((), "-n: how many ranks"),
            (("-n", "0", "true"), "-n: how many ranks"),
            (("-n", "two", "true"), "argument -n"),
            (("-n", "2"), "no program"),
            (("-n", "2", "--"), "no program"),
            (("-n", "2", "--nonsense", "true"), "--nonsense"),
            (("-n", "2", "--restarts", "-1", "true"), "0 or more"),
            (("-n", "2", "--grace", "inf", "true"), "0 or more"),
            (("-n", "", "true"), "argument -n: the value is empty"),
            (("-n", "2", "--restarts", "", "true"), "argument --restarts: the value is empty"),
            (("-n", "2", "--grace=", "true"), "argument --grace: the value is empty"),
        ]:
            status, out, err = self.launch(*words)
            self.assertEqual((status, out), (2, b""), words)
            self.assertIn(text, err.decode())
        for words, wanted in (("./nowhere", 127), ("/etc", 126), ("/etc/passwd", 126)):
            status, _, err = self.launch("-n", "2", "--restarts", "2", "--", words)
            self.assertEqual(status, wanted)
            self.assertRegex(err.decode(), f"^launch: cannot run {re.escape(words)}: .*\n$")
        self.assertIn(b"--restarts K", self.launch("--help")[1])
        self.assertEqual(self.launch("-n", "1", "printf", "%s|", "", "a")[1], b"[0] |a|\n")  # A program's words may be.
        self.assertEqual(self.launch("-n", "1", "--", "bash", "-c", "echo $0", "--help")[1], b"[0] --help\n")


if __name__ == "__main__":
    unittest.main()
