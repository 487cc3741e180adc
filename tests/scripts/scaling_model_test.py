#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scaling_model_test.py SCRIPTS: the model of docs/measured/many-gpus.md, and that the page has its tables."""

import math
import pathlib
import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))
import scaling_model as model


class Model(unittest.TestCase):
    def test_page(self):
        sys.argv[1:] = ["--check"]
        self.assertEqual(model.main(), 0)

    def test_network(self):
        """PyTorch's ResNet-50 has 25,557,032 parameters. Here the stem has 64 x 49 zeros more, and fc.bias 24."""
        units = model.resnet50(1000)
        self.assertEqual(sum(unit.weights + unit.others for unit in units), 25_557_032 + 64 * 49 + 24)
        self.assertAlmostEqual(sum(unit.work for unit in model.resnet50(1000)) / 1e9, 4.1, delta=0.2)

    def test_buckets(self):
        """data_parallel_test.cpp has the same numbers of the program."""
        made = model.buckets(model.resnet50(10))
        self.assertEqual([weights // 2 for weights, _, _ in made], [4_476_928, 13_828_096, 5_173_504])
        self.assertEqual([others // 4 for _, others, _ in made], [6_208, 25_600, 21_376])

    def test_largest(self):
        self.assertAlmostEqual(model.largest_of(1), 0, places=5)
        self.assertAlmostEqual(model.largest_of(2), 1 / math.sqrt(math.pi), places=5)
        self.assertAlmostEqual(model.largest_of(3), 1.5 / math.sqrt(math.pi), places=5)

    def test_measured(self):
        """Two GPUs: all-reduces of 8 MiB and more within 7 %, the step within 0.5 %."""
        for size, microseconds in (97.5, 371), (48.8, 198), (25, 111), (8, 47):
            self.assertAlmostEqual(model.all_reduce(size * model.MIB, 2) / microseconds, 1, delta=0.07)
        two = model.step(2, model.resnet50(10))
        self.assertAlmostEqual(two.rate / model.value("two_gpus"), 1, delta=0.005)


if __name__ == "__main__":
    unittest.main()
