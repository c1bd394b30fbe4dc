"""A real browser on the page of a real server. One browser, and one server with a script, for all.

No test's page may fail, log an error, break the Content-Security-Policy, or
ask anything of another host: the fixture `page` checks it at the end.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gptoss_local.harmony import Vocabulary
from tests.conftest import PATIENCE_S, RunningServer, give_nano, wait_until
from tests.scripted_engine import Script, run_scripted_server
from tests.web.answers import say_all

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright from PyPI")

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
WAIT_MS = 1000 * PATIENCE_S
IS_LET_IN = "() => localStorage.getItem('gptoss-token') !== null"
playwright.expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="package")
def browser() -> Iterator[playwright.Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    with playwright.sync_playwright() as driver:  # ends with the package: others use event loops
        launched = driver.chromium.launch(
            executable_path=CHROMIUM,
            chromium_sandbox=not is_root,
            args=["--disable-gpu"],  # else a process draws as one would, a fifth of all time
        )
        yield launched
        launched.close()


CONFIG = """
[tools.get_weather]
command = ["sh", "-c", 'echo "sunny in $0"', "{city}"]
description = "Gets the weather of a city."
parameters = { type = "object", properties.city.type = "string", required = ["city"] }

[tools.wait]
command = ["sh", "-c", "echo $$ > $0; exec sleep 90", "PID"]
description = "Waits."
timeout_s = 80
"""
"""Two programs that the model may call."""


@pytest.fixture(scope="package")
def scripted(
    tmp_path_factory: pytest.TempPathFactory, nano_home: Path, vocabulary: Vocabulary
) -> Iterator[RunningServer]:
    """A server with the answers of `tests.web.answers`."""
    home = tmp_path_factory.mktemp("web") / "home"
    give_nano(nano_home, home / "cache")
    config = home / "config" / "gptoss" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG.replace("PID", str(home / "pid")))
    script = Script(vocabulary)
    say_all(script)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))  # where presets are
        with run_scripted_server(home, script) as server:
            yield server


class Watch:
    """Faults of a page."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.expected: tuple[str, ...] = ()
        """Parts of problems that the test causes on purpose."""

    def on(self, page: playwright.Page) -> None:
        """Listen to a page from its beginning."""
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", self._on_console)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", lambda dialog: (self.problems.append("alert"), dialog.dismiss()))
        page.on("popup", lambda popup: self.problems.append(f"popup: {popup.url}"))

    def _on_console(self, message: playwright.ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def check(self, *urls: str) -> None:
        """Fail if something happened; `urls` are the servers that may be asked."""
        elsewhere = [u for u in self.requests if not u.startswith((*urls, "blob:", "data:"))]
        unexpected = [p for p in self.problems if not any(part in p for part in self.expected)]
        assert elsewhere == []
        assert unexpected == []


OpenPage = Callable[..., playwright.Page]


@pytest.fixture
def watch() -> Watch:
    return Watch()


def make_context(
    browser: playwright.Browser, server: RunningServer, **options: object
) -> playwright.BrowserContext:
    options = {"viewport": {"width": 1200, "height": 800}, **options}
    context = browser.new_context(**options)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=server.url)
    context.set_default_timeout(WAIT_MS)
    return context


def let_in(page: playwright.Page, server: RunningServer) -> None:
    """Open the link that lets a browser in."""
    page.goto(server.url + server.link())
    wait_until(lambda: page.evaluate(IS_LET_IN))


def close(context: playwright.BrowserContext) -> None:
    for page in context.pages:  # a handler of a route may still be at work
        page.unroute_all(behavior="ignoreErrors")
    context.close()


@pytest.fixture
def open_page(browser: playwright.Browser, watch: Watch) -> Iterator[OpenPage]:
    """Opens pages of a server, each in a browser of its own unless it gets one."""
    contexts: list[playwright.BrowserContext] = []
    urls: set[str] = set()

    def open_one(
        server: RunningServer,
        path: str = "/",
        *,
        context: playwright.BrowserContext | None = None,
        is_let_in: bool = True,
        **options: object,
    ) -> playwright.Page:
        page = (context or make_context(browser, server, **options)).new_page()
        watch.on(page)
        urls.add(server.url)
        if context is None:
            contexts.append(page.context)
            if is_let_in:
                let_in(page, server)
        page.goto(server.url + path)
        return page

    yield open_one
    for context in contexts:
        close(context)
    watch.check(*urls)


@pytest.fixture(scope="module")
def context(
    browser: playwright.Browser, scripted: RunningServer
) -> Iterator[playwright.BrowserContext]:
    """A browser that the server let in, for all tests of a file."""
    made = make_context(browser, scripted)
    page = made.new_page()
    let_in(page, scripted)
    page.close()
    yield made
    close(made)


@pytest.fixture
def page(
    open_page: OpenPage, scripted: RunningServer, context: playwright.BrowserContext
) -> Iterator[playwright.Page]:
    """A page of the scripted server, with a new chat."""
    yield open_page(scripted, context=context)
    for each in context.pages:
        each.unroute_all(behavior="ignoreErrors")
        each.close()
