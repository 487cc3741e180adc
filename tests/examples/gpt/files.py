# SPDX-License-Identifier: Apache-2.0
"""Files of tokens for the tests of train_gpt: documents that a small model can learn."""

import struct


def documents(count=60, vocabulary=50):
    """Each token but the first is one more than the one before, or two more in every second document."""
    state, result = 1, []
    for number in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        length, first = 2 + (state >> 33) % 30, (state >> 40) % (vocabulary - 1)
        step = 1 + number % 2
        result.append([1 + (first + step * i) % (vocabulary - 1) for i in range(length)])
    return result


def write_llm_c(path, texts):
    """Token 0 in front of each document."""
    tokens = [token for text in texts for token in [0, *text]]
    header = [20240520, 1, len(tokens)] + [0] * 253
    path.write_bytes(struct.pack("<256i", *header) + struct.pack(f"<{len(tokens)}H", *tokens))
    return tokens
