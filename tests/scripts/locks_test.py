#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""locks_test.py PROJECT: what the scripts fetch is named by version and hash, and so are the actions of the workflows."""

import pathlib
import re
import sys

PROJECT = pathlib.Path(sys.argv[1]).resolve()
LOCKS = [*(PROJECT / "scripts/locks").glob("*.txt"), PROJECT / "scripts/doc_site/requirements.txt",
         PROJECT / "tests/remote/requirements.txt"]  # fmt: skip
PACKAGE = re.compile(r"[\w.-]+==[\w.]+( ; [^\\]+)?")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def faults_of_lock(text):
    """Lines that a lock file should not have."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ").splitlines()
    for line in filter(None, lines):
        package, *hashes = re.split(r" +(?=--hash)", line.strip())
        if not PACKAGE.fullmatch(package.strip()) or not hashes or not all(HASH.fullmatch(one) for one in hashes):
            yield line[:100]


def faults_of_script(text):
    """Calls of pip that take what has no hash, and other programs that fetch."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("#"):
            continue
        if re.search(r"-m pip (install|download|\"\$)", line) and not {"--require-hashes", "--no-deps"} <= set(line.split()):
            yield line.strip()[:100]
        if re.match(r"\s*(curl|wget)\b", line):
            yield line.strip()[:100]


def faults_of_workflow(text):
    for action in re.findall(r"uses: *(\S+)", text):
        if not action.startswith("./") and not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action):
            yield action


good = "# A comment.\nsome-name==1.2.post1 \\\n    --hash=sha256:" + "a" * 64 + " \\\n    --hash=sha256:" + "0" * 64 + "\n"
assert not list(faults_of_lock(good))
for bad in (good.replace("==1.2.post1", ">=1.2"), good.replace("==1.2.post1", "==1.*"), "some-name==1.2\n", "some-name\n",
            good.replace("sha256", "md5"), good.replace("a" * 64, "a" * 63), good + "--index-url https://example.com\n",
            good + "git+https://example.com/some-name\n"):  # fmt: skip
    assert list(faults_of_lock(bad)), bad
call = "  python3 -m pip install --quiet --no-deps --require-hashes \\\n    --requirement some.txt\n"
assert not list(faults_of_script(call + "# python3 -m pip install uv\n"))
for bad in call.replace("--require-hashes", ""), call.replace("--no-deps", ""), call + "curl https://example.com\n":
    assert list(faults_of_script(bad)), bad
assert list(faults_of_workflow("- uses: actions/checkout@v4")) and list(faults_of_workflow(f"uses: a/b@{'0' * 39}\n"))
assert not list(faults_of_workflow(f"- uses: a/b@{'0' * 40}  # v4"))

faults = [(path, fault) for path in LOCKS for fault in faults_of_lock(path.read_text())]
assert len(LOCKS) > 10, LOCKS
scripts = [PROJECT / "scripts" / name for name in ("setup", "neighbours")]
faults += [(path, fault) for path in scripts for fault in faults_of_script(path.read_text())]
named = "".join(path.read_text() for path in [*scripts, PROJECT / "scripts/gpu_check/pack_dali.py"])
for path in LOCKS:
    stem = path.stem.replace("cuda12.4", "cuda$version").replace("cuda12.9", "cuda$version")
    words = (str(path.relative_to(PROJECT)), f"locks/{stem}.txt", f"unpack_part {stem}", f"unpack_package {stem}")
    if not any(re.search(re.escape(word) + r"\b", named) for word in words):
        faults.append((path, "is read by no script"))
    for line in path.read_text().splitlines():
        if "://" in line:
            faults.append((path, line))
workflows = list((PROJECT / ".github/workflows").glob("*.yml"))
assert workflows
faults += [(path, fault) for path in workflows for fault in faults_of_workflow(path.read_text())]
for path, fault in faults:
    print(f"{path.relative_to(PROJECT)}: {fault}")
sys.exit(1 if faults else 0)
