"""A browser for the tests of a file, and a fresh tab for each test.

At the end the tab must have no complaints.
"""

from collections.abc import Iterator

import pytest

from . import browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Tab]:
    with browser.tab(tmp_path_factory.mktemp("chromium")) as made:
        yield made


@pytest.fixture
def tab(chromium: browser.Tab) -> Iterator[browser.Tab]:
    chromium.complaints.clear()
    chromium.requests.clear()
    chromium.call(
        "Emulation.setDeviceMetricsOverride",
        width=1000,
        height=800,
        deviceScaleFactor=1,
        mobile=False,
    )
    chromium.call("Emulation.setEmulatedMedia", media="", features=[])
    yield chromium
    assert chromium.complaints == []
    assert all(url.startswith(("file:", "about:")) for url in chromium.requests)
