# SPDX-License-Identifier: Apache-2.0
"""Runs the jobs of a measurement one after the other, as long as there is time, and keeps their results."""

import json
import time

LONGEST = 150  # seconds of one job


def run(jobs, option, path, width):
    """Runs `jobs`, which are (name, seconds, work). A job does not begin if fewer seconds are left, except in a dry run.
    work(limit) returns a row. After each job, all rows are written to `path` and a line is printed. Returns the rows by name,
    and the names of the jobs for which there was no time in option.seconds."""
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
    """Says what is left. Returns the exit status, which is 1 if a job failed."""
    if left:
        print(f"There was no time for: {', '.join(left)}")
    return int(any("failed" in row for row in results.values()))
