#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""exchange_test.py CHECKPOINT_EXCHANGE: our checkpoint loads in PyTorch, strictly, and infers the
same; PyTorch's loads here, with some tensors in other types. Exit code 77: there is no PyTorch."""

import pathlib
import subprocess
import sys
import tempfile


def logits(*command):
    words = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    assert words[0] == "resnet8" and len(words) == 9, words
    return [float(word) for word in words[1:]]


def far(left, right):
    return max(abs(a - b) for a, b in zip(left, right))


def main(program):
    try:
        import safetensors
        import torch
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    make_vectors = pathlib.Path(__file__).with_name("make_vectors.py")
    with tempfile.TemporaryDirectory() as directory:
        ours, theirs = f"{directory}/ours.safetensors", f"{directory}/theirs.safetensors"
        written = logits(program, "write", ours)
        loaded = logits(sys.executable, str(make_vectors), "checkpoint", ours, theirs)
        back = logits(program, "read", theirs)
    print(f"PyTorch {torch.__version__}: differences {far(written, loaded):.1e}", end="")
    print(f", of a file with bfloat16 {far(written, back):.1e}")
    # float32 apart; and the first convolution rounded to eight bits.
    return 0 if far(written, loaded) < 1e-5 and 0 < far(written, back) < 2e-2 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
