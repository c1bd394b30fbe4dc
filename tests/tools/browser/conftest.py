"""Fixtures of the browser's tests."""

from collections.abc import Iterator

import pytest

from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools import Toolbox
from gptoss_local.talk.tools.browser import Browser
from gptoss_local.talk.tools.consent import Consents
from tests.tools.browser.site import Site, running_site


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def site() -> Iterator[Site]:
    with running_site() as running:
        yield running


class Model:
    """Calls the tools as a model would, through a toolbox."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.toolbox = Toolbox([browser], Consents(None))

    async def call(self, function: str, **arguments: object) -> str:
        await self.toolbox.prepare()
        return (await self.toolbox.run(f"browser.{function}", arguments)).text


@pytest.fixture
def model() -> Model:
    """One that may open this machine's pages."""
    return Model(Browser(Settings(browser_private=True), is_on=True))
