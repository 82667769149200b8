"""Secrets in texts: masked by the one function that every way out uses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

SECRET = re.compile(
    r"password|secret|jaas|token|credential|access_?key|account_?key|sas_?key|private|keystore\.key|key\.pem",
    re.IGNORECASE,
)
"""Names of options whose values are secrets."""
ENV = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
MASK = "********"
_PARTS = re.compile(r"(?:\$\{env:[A-Za-z_][A-Za-z0-9_]*\}|[^:])+")
_SCHEME = r"[A-Za-z][A-Za-z0-9+.-]{0,30}://"
# Lengths are bounded, since others may have written the text.
_USER_OF_URL = re.compile(rf"({_SCHEME})([^/?#\s\"',]{{1,500}})@")
_QUERY_OF_URL = re.compile(rf"({_SCHEME}[^\s\"'?]{{0,500}}\?)([^\s\"']+)")
_NAMED = re.compile(
    r"((?:password|passwd|secret|token|credential|api_?key|access_?key|account_?key|sas_?key)s?\s?=\s?"
    r"|authorization\s?[:=]\s?(?:(?:basic|bearer)\s)?)"
    r"(\"[^\"]*\"|'[^']*'|[^\s&;,\"']+)",
    re.IGNORECASE,
)


def masked(text: str) -> str:
    """A secret for printing: only the names of its variables."""
    if ENV.fullmatch(text):
        return text
    return MASK + "".join(match[0] + MASK for match in ENV.finditer(text))


def without_secrets(value: Any) -> Any:
    """Text, or every text of a document, with what may be secret masked: users, passwords and queries
    of addresses, and what follows a name such as `password=`. Variables stay."""
    return with_texts(_masked, value)


def with_texts(change: Callable[[str], str], value: Any) -> Any:
    """A document with each of its texts changed; keys stay."""
    if isinstance(value, dict):
        return {key: with_texts(change, each) for key, each in value.items()}
    if isinstance(value, list):
        return [with_texts(change, each) for each in value]
    return change(value) if isinstance(value, str) else value


def _masked(text: str) -> str:
    text = _USER_OF_URL.sub(_without_user, text)
    for pattern in (_QUERY_OF_URL, _NAMED):
        text = pattern.sub(lambda found: found[1] + masked(found[2].strip("\"'")), text)
    return text


def _without_user(found: re.Match[str]) -> str:
    """An address without `user:password`; variables stay."""
    parts = _PARTS.findall(found[2])
    return f"{found[1]}{':'.join(each if ENV.fullmatch(each) else MASK for each in parts)}@"
