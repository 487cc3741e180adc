#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The five programs of docs/migration.md.

results: all five have the same histograms, and those of a reference that is computed here. errors: what they refuse.
findings: under penstock-trace each step has the findings that the page tells, and no more those that it removes.

Use: migration_test.py (results|errors|findings) PROGRAMS SUFFIX MAKE_IMAGES [PENSTOCK_TRACE]
"""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts/gpu_check"))
from migration_table import FINDINGS, STEPS

CASE, PROGRAMS, SUFFIX, MAKE, *TRACE = sys.argv[1:]
WIDTH, HEIGHT = 40, 24
WEIGHTS = [1, 2, 6, 11, 20, 30, 38, 40, 38, 30, 20, 11, 6, 2, 1]


def run(*command, status=0):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, (command, done)
    return done.stdout + done.stderr


def program(step):
    return pathlib.Path(PROGRAMS, step + ("" if SUFFIX == "gpu" else SUFFIX))


def make_images(folder, count, *options):
    run(MAKE, "--out", folder, "--train", count, "--val", 0, "--plain", "--width", WIDTH, "--height", HEIGHT, *options)
    return folder / "train"


def weighted(values, at):
    """The weighted sum around values[at]; beyond the border the last value counts."""
    return sum(weight * values[min(max(at + i - 7, 0), len(values) - 1)] for i, weight in enumerate(WEIGHTS))


def histogram(pixels):
    counts = [0] * 768
    for channel in range(3):
        plane = [pixels[3 * WIDTH * y + channel:3 * WIDTH * (y + 1):3] for y in range(HEIGHT)]
        rows = [[weighted(row, x) for x in range(WIDTH)] for row in plane]
        for column in zip(*rows):
            for y in range(HEIGHT):
                counts[256 * channel + (weighted(column, y) + 0x8000 >> 16)] += 1
    return counts


def reference(folder, images):
    """The checksum that images.hpp defines, of PPM files in the order of FileFolder."""
    files = [path for name in sorted(folder.iterdir()) for path in sorted(name.iterdir())]
    counts = [histogram(path.read_bytes()[-3 * WIDTH * HEIGHT:]) for path in files]
    checksum = 0
    for image in range(images):
        value = 0xcbf29ce484222325 ^ image
        for count in counts[image % len(files)]:
            value = (value ^ count) * 0x100000001b3 % 2**64
        checksum += value
    return f"{checksum % 2**64:016x}"


def test_results(scratch):
    ppm = make_images(scratch / "ppm", 12, "--ppm")
    jpeg = make_images(scratch / "jpeg", 12)
    for folder, images in ((ppm, 12), (ppm, 67), (ppm, 1), (jpeg, 67)):
        said = {step: run(program(step), folder, images) for step in STEPS}
        checksums = {text.split("checksum: ")[1].strip() for text in said.values()}
        assert len(checksums) == 1, said
        assert all(f"images: {images}\n" in text for text in said.values()), said
        assert folder == jpeg or checksums == {reference(ppm, images)}, (checksums, reference(ppm, images))
    assert "images: 12\n" in run(program("1_cpu"), ppm)


def test_errors(scratch):
    folder = make_images(scratch / "images", 12, "--ppm")
    for step in STEPS:
        assert "FOLDER [IMAGES]" in run(program(step), status=2)
        assert "none" in run(program(step), scratch / "none", status=1)
        for images in ("many", "0", "-1", "12abc", "", " 1", "10000001", "18446744073709551617"):
            assert "IMAGES is a number" in run(program(step), folder, images, status=1)
    victim = folder / "ring" / "train_00000001.ppm"
    good = victim.read_bytes()
    for bad, what in ((b"P6\n2 2\n255\n" + bytes(12), "size of the first"), (b"no image", "train_00000001")):
        victim.write_bytes(bad)
        for step in STEPS:
            said = run(program(step), folder, status=1)
            assert what in said and victim.name in said, (step, said)
    victim.write_bytes(good)


def test_findings(scratch):
    folder = make_images(scratch / "images", 12, "--ppm")
    for step, rules in FINDINGS.items():
        for absent in (False, True):
            wanted = [rule for rule, gone in rules.items() if gone == absent]
            # Each of those that it has; all at once of those that it has not.
            for fail_on in [",".join(wanted)] if absent and wanted else wanted:
                run(TRACE[0], "--quiet", "--out", scratch / step, "--fail-on", fail_on, "--", program(step), folder, 320,
                    status=0 if absent else 3)  # fmt: skip
    for step, later in zip(STEPS[1:], STEPS[2:]):
        removed = [rule for rule, gone in FINDINGS[step].items() if not gone and FINDINGS[later].get(rule)]
        assert removed, f"{later} removes no finding of {step}"


def main():
    if SUFFIX == "gpu" and "GPU" not in os.popen("nvidia-smi -L 2> /dev/null").read():
        print("skipped: no GPU")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        {"results": test_results, "errors": test_errors, "findings": test_findings}[CASE](pathlib.Path(scratch))
    print("passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
