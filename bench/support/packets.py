# SPDX-License-Identifier: BSD-2-Clause OR MIT
"""What a program's tcp endpoints put into each packet, from a trace of its system
calls: a packet is what one call hands to a socket. docs/tcp-wire.md has the format.
"""
import collections
import re

# Constants of the format.
VERSION, HEADER, HANDSHAKE = 3, 16, 32
# Operations that the library sends of itself, and where `op_data` of a plain
# message says so.
ACKNOWLEDGEMENTS, OTHERS, PLAIN = {0x40}, {0x44, 0x47}, (0, 2)
# Operations that answer an application's request, or continue one.
REST = {0x03, 0x06, 0x07, 0x42, 0x43, 0x46, 0x48}
# Bytes of each buffer in the trace: enough for
# what an outbox sends at once of small messages.
SEEN = 1 << 17

COMMAND = ["strace", "-f", "-qq", "--seccomp-bpf", "-xx", "-s", str(SEEN),
           "-e", "signal=none", "-e", "trace=sendto,sendmsg,writev,write,close,clone,clone3,vfork,fork"]


class Connection:
    """One direction of a connection, if it is one of ours."""

    def __init__(self):
        # Bytes that remain of a message whose header was seen; None before the
        # handshake, negative where the trace does not show what was sent.
        self.rest = None
        self.is_ours = True

    def packet(self, pieces, sent):
        """The kinds of the messages that begin in what one call has sent."""
        data, at, kinds = Pieces(pieces, sent), 0, []
        if self.rest is None:
            first = data.bytes(0, HANDSHAKE)
            if len(first) < HANDSHAKE or first[0] != VERSION or first[1] > 1:
                self.is_ours = False
                return []
            at, self.rest = HANDSHAKE + int.from_bytes(first[2:4], "big"), 0
        while at < sent:
            if self.rest:
                step = min(self.rest, sent - at)
                at, self.rest = at + step, self.rest - step
                continue
            header = data.bytes(at, HEADER)
            if len(header) < HEADER or header[0] != VERSION:
                raise ValueError("a header that the trace does not show whole")
            kinds.append((header[1], header[4]))
            self.rest = int.from_bytes(header[8:16], "little")
        return kinds


class Pieces:
    """Buffers of which the trace has the beginning."""

    def __init__(self, pieces, sent):
        self.pieces, self.sent = pieces, sent

    def bytes(self, at, count):
        found = b""
        for data, length in self.pieces:
            if at < length and count:
                part = data[at:min(length, at + count)]
                found, count = found + part, count - len(part)
                if len(part) < min(length - at, count + len(part)):
                    break
            at = max(0, at - length)
        return found


def is_own(kind):
    """Whether the library sends that for itself."""
    return kind == PLAIN or kind[0] in ACKNOWLEDGEMENTS | OTHERS


class Counts:
    """Messages and other requests of the application, packets, and packets with
    nothing but what the library sends for itself."""

    def __init__(self):
        self.messages = self.packets = self.own = 0

    def add(self, kinds):
        self.packets += 1
        self.messages += sum(not is_own(kind) and kind[0] not in REST for kind in kinds)
        self.own += bool(kinds) and all(is_own(kind) for kind in kinds)


BUFFER = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(?:\.\.\.)?, (?:iov_len=)?(\d+)')
CALL = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+)")
BEGUN = re.compile(r"(\d+) +(\w+)\((.*) <unfinished \.\.\.>$")
RESUMED = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>(.*)\) += (-?\d+)")


def calls(lines):
    """(thread, call, arguments, result) of all that have ended."""
    begun = {}
    for line in lines:
        if found := BEGUN.match(line):
            begun[found[1], found[2]] = found[3]
        elif found := RESUMED.match(line):
            yield found[1], found[2], begun.pop((found[1], found[2]), "") + found[3], int(found[4])
        elif found := CALL.match(line):
            yield found[1], found[2], found[3], int(found[4])


def count(lines):
    """Counts of all connections in a trace."""
    process, connections = {}, collections.defaultdict(Connection)
    counts = Counts()
    for thread, call, arguments, result in calls(lines):
        owner = process.setdefault(thread, thread)
        if call in ("clone", "clone3", "vfork", "fork"):
            child = str(result)
            process[child] = owner if "CLONE_THREAD" in arguments else child
            continue
        key = owner, arguments.split(",", 1)[0]
        if call == "close":
            connections.pop(key, None)
            continue
        connection = connections[key]
        if result <= 0 or not connection.is_ours:
            continue
        pieces = [(bytes.fromhex(found[1].replace("\\x", "")), int(found[2]))
                  for found in BUFFER.finditer(arguments)]
        kinds = connection.packet(pieces, result)
        if connection.is_ours:
            counts.add(kinds)
    return counts
