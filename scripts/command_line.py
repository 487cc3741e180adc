# SPDX-License-Identifier: Apache-2.0
"""Options of the scripts. A value that is empty is an error: it comes from a variable that is not set, and would turn
off what was asked for."""

import argparse


class Parser(argparse.ArgumentParser):
    def _get_value(self, action, text):
        if text == "" and action.nargs != argparse.REMAINDER:  # whose words are another program's
            raise argparse.ArgumentError(action, "the value is empty: is a variable not set?")
        return super()._get_value(action, text)


def entries(text):
    """Type of an option: "T4,T5", each of them not empty."""
    found = text.split(",")
    if "" in found:
        raise argparse.ArgumentTypeError(f"an entry of {text} is empty")
    return found
