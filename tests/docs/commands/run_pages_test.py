#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_pages_test.py RUN_PAGES: what run_pages.py finds in a project with one page"""

import pathlib
import subprocess
import sys
import tempfile

run_pages = pathlib.Path(sys.argv[1]).resolve()


def check(page, status, *texts, options=()):
    """With this page the exit status is `status`, and each of the texts is printed; one that begins with ! is not."""
    with tempfile.TemporaryDirectory() as folder:
        project = pathlib.Path(folder, "project")
        project.mkdir()
        (project / "PAGE.md").write_text(page)
        (project / ".gitignore").write_text("/build/\n")
        subprocess.run(["git", "init", "--quiet", project], check=True)
        subprocess.run(["git", "-C", project, "add", "--all"], check=True)
        ended = subprocess.run([sys.executable, run_pages, *options, project, pathlib.Path(folder, "pages")],
                               capture_output=True, text=True)  # fmt: skip
        output = ended.stdout + ended.stderr
        wrong = ended.returncode != status
        for text in texts:
            wrong = wrong or (text[1:] in output if text.startswith("!") else text not in output)
        if wrong:
            sys.exit(f"exit status {ended.returncode}, not {status}, or not {texts}:\n{page}\n{output}")


FENCE = "```"
check(f"{FENCE}sh\necho one; echo two \\\n  three\nPATH=$PWD:$PATH\ncase $PATH in $PWD:*) echo kept ;; esac\n{FENCE}\n", 0,
      "one", "two three", "kept")  # fmt: skip
check(f"{FENCE}sh\necho one\n{FENCE}\n\n{FENCE}sh\nfalse && true\necho two\n{FENCE}\n", 1, "one", "FAILED: PAGE.md:6", "!two\n")
check(f"{FENCE}sh\necho $HOME; test ! -e ~/.gitconfig\n{FENCE}\n", 0, "/pages/home")
check(f"{FENCE}sh\nmkdir build; touch build/there\n{FENCE}\n", 0)
check(f"{FENCE}sh\ntouch here\n{FENCE}\n", 1, "leave what git sees", "?? here")
check(f"{FENCE}cpp\nfalse\n{FENCE}\n", 0)
check(f"- item\n\n  {FENCE}sh\n  false\n  {FENCE}\n", 1, "FAILED: PAGE.md:4")
check(f"<!-- not run: a reason -->\n{FENCE}sh\nfalse\n{FENCE}\n", 0, "left out: PAGE.md:3: a reason: false")
check(f'<!-- not run, "fal": a reason -->\n{FENCE}sh\nfalse\necho one\n{FENCE}\n', 0, "a reason", "one")
check(f'<!-- not run, "true": a reason -->\n{FENCE}sh\nfalse\n{FENCE}\n', 1, "no command of the block begins with true",
      options=["--list"])  # fmt: skip
check(f"<!-- not run: a reason -->\n\n{FENCE}sh\nfalse\n{FENCE}\n", 1, "on the line before", options=["--list"])
check(f"<!-- not run -->\n{FENCE}sh\ntrue\n{FENCE}\n", 1, "no mark", options=["--list"])
check(f"<!-- not run: a reason -->\n{FENCE}cpp\n{FENCE}\n", 1, "not sh", options=["--list"])
print("run_pages.py finds what does not work")
