#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs examples/minimal on a small data set and compares its loss with one that Python computes:
# minimal_test.sh <minimal> <make_cifar10> <python>.

set -euo pipefail
if [[ -n ${NEEDS_GPU-} ]] && ! nvidia-smi -L 2> /dev/null | grep --quiet GPU; then
  echo "skipped: no GPU"
  exit 77
fi
minimal=$1 make_cifar10=$2 python=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

"$make_cifar10" --out . --train 2505 --test 1 2> /dev/null  # 1002 records in two files: the last batch is short
"$minimal" > out.txt
cat out.txt
"$python" - out.txt << 'END'
import math, pathlib, re, sys

records = pathlib.Path("data_batch_1.bin").read_bytes() + pathlib.Path("data_batch_2.bin").read_bytes()
expected = 0.0
for start in range(0, len(records), 3073):
    brightness = sum(records[start + 1:start + 3073]) / (3072 * 255)
    expected += 10 * (brightness - records[start] / 9) ** 2  # ten epochs

text = pathlib.Path(sys.argv[1]).read_text()
loss = float(re.search(r"^loss: (\S+)$", text, re.MULTILINE)[1])
print("expected:", expected)
assert math.isclose(loss, expected, rel_tol=1e-4), "the loss is another"
assert re.search(r"^bottleneck: \w+$", text, re.MULTILINE), "no statistics"
assert "in place of float" not in text, "advice for another program: its pixels are uint8"
END
