# SPDX-License-Identifier: Apache-2.0
"""Options of the scripts. An empty value is an error, because it usually comes from a variable that is not set and would
turn off what was asked for."""

import argparse
import json
import pathlib


class Parser(argparse.ArgumentParser):
    def _get_value(self, action, text):
        if text == "" and action.nargs != argparse.REMAINDER:  # those words belong to another program
            raise argparse.ArgumentError(action, "the value is empty: is a variable not set?")
        return super()._get_value(action, text)


def entries(text):
    """The type of an option such as "T4,T5". No entry may be empty."""
    found = text.split(",")
    if "" in found:
        raise argparse.ArgumentTypeError(f"an entry of {text} is empty")
    return found


def count(text):
    """The type of an option that is a whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 1 on")
    return int(text)


def json_file(text):
    """The type of an option that names a JSON file. The file is read at once, before anything is measured."""
    try:
        return json.loads(pathlib.Path(text).read_text())
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be read: {error}") from None
