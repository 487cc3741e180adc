# SPDX-License-Identifier: Apache-2.0
"""What ranks say to each other over TCP until they have met, written a second time
(examples/resnet/distributed/introduction.hpp)."""

import hmac
import os
import socket
import struct
import time

LONG = 60  # seconds that nothing here takes
HELLO, CHALLENGE, PROOF, WELCOME, REFUSED, START, MISSING = range(7)
KINDS = 12
NONCE = PROOF_SIZE = 32
# The refusal of who may be anybody.
UNPROVEN = b"refused: has this rank the same secret (PENSTOCK_JOB_SECRET) as rank 0?"


def header(kind, size):
    return b"penstok2" + struct.pack("=II", kind, size)


def message(kind, text):
    return header(kind, len(text)) + text


def proof(secret, role, nonces, said=b""):
    return hmac.digest(secret, b"penstock: " + role + b"\0" + nonces + said, "sha256")


def said_to(port, what):
    """A connection to rank 0, once it is there, on which that was said."""
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=LONG)
        except ConnectionRefusedError:
            time.sleep(0.01)
            continue
        connection.sendall(what)
        return connection


def bytes_from(connection, count):
    got = b""
    while len(got) < count and (more := connection.recv(count - len(got))):
        got += more
    return got


def heard(connection):
    """The kind and the text of the next message; None and b"" where there is no more."""
    begin = bytes_from(connection, 16)
    if not begin:
        return None, b""
    kind, size = struct.unpack("=II", begin[8:])
    assert begin == header(kind, size), begin
    return kind, bytes_from(connection, size)


def all_from(connection):
    """What the other side says until it closes the connection."""
    said = b""
    try:
        while more := connection.recv(1 << 16):
            said += more
    except ConnectionResetError:
        pass
    return said


def greeted(port, secret):
    """A connection to rank 0, which has proved the secret on it; and both nonces."""
    own = os.urandom(NONCE)
    connection = said_to(port, message(HELLO, own))
    kind, text = heard(connection)
    nonces = own + text[PROOF_SIZE:]
    assert kind == CHALLENGE and len(nonces) == 2 * NONCE, (kind, text)
    assert text[:PROOF_SIZE] == proof(secret, b"rank 0", nonces), text
    return connection, nonces


def introduced(port, claim, secret=b""):
    """A connection on which a rank proved this claim; and the kind and the text of rank 0's answer."""
    connection, nonces = greeted(port, secret)
    connection.sendall(message(PROOF, proof(secret, b"rank", nonces, claim) + claim))
    kind, text = heard(connection)
    if kind == WELCOME:
        assert text == proof(secret, b"welcome", nonces, claim), text
    return connection, kind, text
