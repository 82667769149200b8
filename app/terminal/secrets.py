"""Secrets in texts: masked by the one function that every way out uses."""

from __future__ import annotations

import re
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
    if isinstance(value, str):
        value = _USER_OF_URL.sub(lambda found: f"{found[1]}{_user(found[2])}@", value)
        for pattern in (_QUERY_OF_URL, _NAMED):
            value = pattern.sub(lambda found: found[1] + masked(found[2].strip("\"'")), value)
        return value
    if isinstance(value, dict):
        return {key: without_secrets(each) for key, each in value.items()}
    return [without_secrets(each) for each in value] if isinstance(value, list) else value


def _user(text: str) -> str:
    """`user:password` of an address; variables stay."""
    return ":".join(each if ENV.fullmatch(each) else MASK for each in _PARTS.findall(text))
