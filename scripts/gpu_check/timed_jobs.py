# SPDX-License-Identifier: Apache-2.0
"""Runs the jobs of a measurement one after the other, as long as there is time, and keeps their results."""

import json
import time

LONGEST = 150  # seconds of one job


def run(jobs, option, path, width):
    """`jobs`: (name, seconds without which it is not begun, work); work(limit) returns a row. A dry run begins each of them.
    Writes all rows to `path` after each one, and prints a line for it. Returns the rows by name, and the names of jobs
    for which there was no time in option.seconds."""
    end, results, left = time.monotonic() + option.seconds, {}, []
    for name, needs, work in jobs:
        limit = min(LONGEST, end - time.monotonic())
        if limit < (1 if option.dry_run else needs):
            left.append(name)
            continue
        results[name] = row = work(limit)
        speed = f"{row['images_per_second']:10.1f} images/s" if "images_per_second" in row else "done"
        print(f"{name:{width}}{row.get('failed', speed)}", flush=True)
        path.write_text(json.dumps(results, indent=1) + "\n")
    return results, left


def finish(results, left):
    """Tells what is left. Returns the exit status: 1 when a job failed."""
    if left:
        print(f"There was no time for: {', '.join(left)}")
    return int(any("failed" in row for row in results.values()))
