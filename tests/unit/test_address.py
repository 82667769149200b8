"""Addresses: one reading decides who is asked, and every later reader agrees with it."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from urllib3.util import parse_url

from app.address import Address, HttpOrigin, parsed, redirected

AT = parsed("http://here:8080/admin/v2/a?b=1")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h", Address(HttpOrigin("http", "h", 80), "")),
        (
            "HTTPS://Broker-1.example:8443/",
            Address(HttpOrigin("https", "broker-1.example", 8443), "/"),
        ),
        ("https://h?x=/:@", Address(HttpOrigin("https", "h", 443), "?x=/:@")),
        (
            "http://a_b:080/é".replace("é", "%C3%A9"),
            Address(HttpOrigin("http", "a_b", 80), "/%C3%A9"),
        ),
        ("http://[0:0::1]:1/", Address(HttpOrigin("http", "[::1]", 1), "/")),
        ("http://[::FFFF:7f00:1]", Address(HttpOrigin("http", "[::ffff:127.0.0.1]", 80), "")),
    ],
)
def test_parts(url: str, expected: Address) -> None:
    found = parsed(url)
    origin = found.origin
    assert (origin.scheme, origin.port, found.target) == (
        expected.origin.scheme,
        expected.origin.port,
        expected.target,
    )
    assert parsed(found.url) == found
    if "FFFF" not in url:  # Python releases write this one in two ways
        assert found == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h:80",
        "ftp://h/",
        "http:/h",
        "http:///h",
        "http://",
        "http://:80/",
        "http://h:/",
        "http://h:0/",
        "http://h:65536/",
        "http://h:\uff18\uff10/",
        "http://h:+80/",
        "http://h:80:90/",
        "http://h./",
        "http://-h/",
        "http://h%2e/",
        "http://h\\@i/",
        "http://h/\\i",
        "http://a@h/",
        "http://@h/",
        "http://a:b@c@h/",
        "http://h#@i/",
        "http://h/#x",
        "http://h/ ",
        " http://h/",
        "http://h\t/",
        "http://h\n",
        "http://h/\x00",
        "http://h\u3002i/",
        "http://\uff48/",
        "http://münchen/",
        "http://h/é",
        "http://[::1%25eth0]/",
        "http://[::1%eth0]/",
        "http://[::1/",
        "http://::1/",
        "http://[h]/",
        "http://[::1]x/",
    ],
)
def test_what_is_not_plain_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match=r"is not|At |Only|Expected"):
        parsed(url)


def test_a_login_is_taken_where_there_may_be_one() -> None:
    found = parsed("http://me:p%40w@h/x", may_log_in=True)
    assert found == Address(HttpOrigin("http", "h", 80), "/x", "me:p%40w")
    assert found.url == "http://h/x"


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/b", "http://here:8080/b"),
        ("b", "http://here:8080/admin/v2/b"),
        ("?c=2", "http://here:8080/admin/v2/a?c=2"),
        ("//there/b", "http://there/b"),
        ("https://There:8443/b", "https://there:8443/b"),
        ("///there/b", "http://here:8080/there/b"),
        ("http:b", "http://here:8080/admin/v2/b"),
    ],
)
def test_redirects(location: str, expected: str) -> None:
    assert redirected(AT, location) == parsed(expected)


PIECES = st.lists(
    st.sampled_from(
        [
            *("http://", "https://", "HTTP:", "//", "/", "\\", "@", ":", "#", "?", "[", "]", "%"),
            *("here", "evil", "8080", "80", "::1", ".", "\t", "\n", " ", "\x00", "é", "\u3002"),
            *("%40", "%5c", "0x7f", ";", ",", "&"),
        ]
    ),
    max_size=12,
).map("".join)


@given(PIECES | st.text(max_size=30))
@example("http://evil:39111\\@here:8080/")
@example("http://here:8080#@evil/")
def test_every_reader_finds_the_same_host_and_port(location: str) -> None:
    try:
        there = redirected(AT, location)
    except ValueError:
        return
    origin, url = there.origin, there.url
    split, read = urlsplit(url), parse_url(url)
    host = origin.host.strip("[]")
    assert (split.scheme, split.hostname) == (origin.scheme, host)
    assert (read.scheme, (read.host or "").strip("[]")) == (origin.scheme, host)
    default = {"http": 80, "https": 443}[origin.scheme]
    assert (split.port or default) == (read.port or default) == origin.port
    assert split.username is split.password is read.auth is None
