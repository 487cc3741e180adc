# SPDX-License-Identifier: Apache-2.0
"""How many threads or processes the peers of benchmarks/peers/run are tried with."""


def counts(cores, *more):
    """From a quarter of the cores, where memory or a lock is the limit, to two for each, which wait. The best one is taken."""
    return sorted({max(1, cores // 4), max(1, cores // 2), max(1, cores - 1), cores, 2 * cores, *more})
