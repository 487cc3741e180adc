# SPDX-License-Identifier: Apache-2.0
"""penstock's headers, static libraries and CMake package. `python -m libpenstock --help` says how a project finds them."""

import importlib.metadata
import pathlib

__version__ = importlib.metadata.version("libpenstock")


def prefix() -> str:
    """The folder that was installed to: it has include/ and lib/."""
    return str(pathlib.Path(__file__).resolve().parent)


def cmake_dir() -> str:
    """The folder of the CMake package: -Dpenstock_DIR."""
    return str(pathlib.Path(prefix(), "lib/cmake/penstock"))
