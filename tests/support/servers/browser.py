"""A browser for the tests of pages, and how they look at them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers import chromium
from tests.support.servers.chromium import Chromium

PHONE, DESK = 390, 1200
CONTRAST = """
(() => {
  const light = colour => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const ratio = (a, b) => {
    const [high, low] = [light(a), light(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const paper = getComputedStyle(document.body).backgroundColor;
  const seen = [...document.querySelectorAll('%s')].filter(e => e.getClientRects().length);
  return seen.map(e => ratio(getComputedStyle(e)['%s'], paper));
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A browser for the tests of this file. Skips where none is installed."""
    if chromium.executable() is None:
        pytest.skip("no Chromium: install the package chromium")
    opened = Chromium(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
