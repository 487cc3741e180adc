# SPDX-License-Identifier: Apache-2.0
import argparse

import libpenstock

parser = argparse.ArgumentParser(prog="python -m libpenstock", description="Where penstock is, for builds that use it.")
one = parser.add_mutually_exclusive_group(required=True)
one.add_argument("--version", action="store_const", dest="text", const=libpenstock.__version__)
one.add_argument("--prefix", action="store_const", dest="text", const=libpenstock.prefix(),
                 help="the folder with include and lib")  # fmt: skip
one.add_argument("--cmake-dir", action="store_const", dest="text", const=libpenstock.cmake_dir(),
                 help="for cmake -Dpenstock_DIR; scikit-build-core finds it itself")  # fmt: skip
print(parser.parse_args().text)
