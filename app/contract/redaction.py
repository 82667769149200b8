"""What is kept of a refused record's text: no payload, however its key is written, and not too
much.

JSON is read token by token, so a payload is found by what the text means and not by how it is
spelled. What is no JSON is kept up to the first place at which a payload may be. Work is linear in
what is kept, and memory does not grow with a payload.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress

PAYLOAD = "payload"
MOST_KEPT = 1 << 20
"""Bytes that are kept of a text."""
MOST_OF_NO_JSON = 10_000
"""The same of a text that is not JSON, or longer than MOST_KEPT."""
MOST_TOKENS = 300_000
LONGEST_NAME = 2 + 6 * len(PAYLOAD)
"""Bytes of the name with quotes and all letters escaped."""
# Possessive: a string of a hundred megabytes leaves no states behind.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
# The word with letters as they are or escaped, in any case, in UTF-8 or UTF-16.
_ANYWHERE = re.compile(
    b"\\x00*".join(
        f"(?:{letter}|\\\\u00{ord(letter):02x}|\\\\u00{ord(letter.upper()):02x})".encode()
        for letter in PAYLOAD
    ),
    re.IGNORECASE,
)


class _TooLong(Exception):
    """The text has more to keep than is kept, or more tokens than are read."""


def redact(raw: bytes | memoryview) -> bytes:
    """The text of a record with its payload replaced by its length and CRC-32."""
    # A short text without the word is kept as it is, JSON or not.
    if len(raw) > MOST_OF_NO_JSON or _ANYWHERE.search(raw) is not None:
        with suppress(_TooLong, ValueError, RecursionError):
            kept = _without_payload(raw)
            if len(kept) <= MOST_KEPT:
                json.loads(kept.decode())
                return kept
    return _beginning(raw)


def _without_payload(raw: bytes | memoryview) -> bytes:
    """A JSON text without payloads; any other text comes out somehow."""
    parts: list[bytes | memoryview] = []
    done, tokens, is_name = 0, _tokens(raw), False
    for text, begin, _ in tokens:
        if begin - done > MOST_KEPT:
            raise _TooLong
        if text == b":" and is_name:
            first, last = _value(tokens)
            if first < last and bytes(raw[first : min(last, first + 5)]) != b"null":
                quotes = 1 if bytes(raw[first : first + 1]) == b'"' else 0
                note = _note(raw, first + quotes, last - quotes)
                parts += [raw[done:first], note]
                done = last
        is_name = _is_payload(text)
    return b"".join([*parts, raw[done:]])


def _tokens(raw: bytes | memoryview) -> Iterator[tuple[bytes, int, int]]:
    """Tokens with their begin and end; one that is too long for a name is empty."""
    for number, found in enumerate(_TOKEN.finditer(raw)):
        if number == MOST_TOKENS:
            raise _TooLong
        begin, end = found.span()
        yield bytes(raw[begin:end]) if end - begin <= LONGEST_NAME else b"", begin, end


def _is_payload(token: bytes) -> bool:
    """Whether a token is the name, as JSON reads it, in any case."""
    if not token.startswith(b'"'):
        return False
    try:
        return str(json.loads(token)).casefold() == PAYLOAD
    except ValueError:
        return False


def _value(tokens: Iterator[tuple[bytes, int, int]]) -> tuple[int, int]:
    """Begin and end of the value that comes next."""
    first = last = depth = 0
    for number, (text, begin, end) in enumerate(tokens):
        first, last = first if number else begin, end
        depth += (text in (b"{", b"[")) - (text in (b"}", b"]"))
        if depth <= 0:
            break
    return first, last


def _beginning(raw: bytes | memoryview) -> bytes:
    """The beginning of a text, up to where a payload may be."""
    end = min(len(raw), MOST_OF_NO_JSON)
    # A name that the end cuts in two is found as a whole.
    found = _ANYWHERE.search(raw, 0, end + 16 * len(PAYLOAD))
    if found is not None:
        end = min(end, found.start())
    kept = bytes(raw[:end])
    return kept if end == len(raw) else kept + b" " + _note(raw, end, len(raw))


def _note(raw: bytes | memoryview, begin: int, end: int) -> bytes:
    return b'"%d characters left out, CRC-32 %08x"' % (
        end - begin,
        zlib.crc32(memoryview(raw)[begin:end]),
    )
