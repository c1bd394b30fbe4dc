"""Drive Firefox by WebDriver BiDi, and WebKit by WebDriver.

Playwright's own builds of both are not Debian's; these are the browsers that people have.
"""

import base64
import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from tests.conftest import wait_until

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
WEBKIT = shutil.which("WebKitWebDriver")
MINI_BROWSER = next(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"), None)
XVFB = shutil.which("Xvfb")
START_S, STEP_S = 60.0, 30.0
WIDTH, HEIGHT = 1000, 800
ENTER, ESCAPE = "\ue007", "\ue00c"


def _actions(keys: str) -> list[dict[str, Any]]:
    """Return the source of keys that are pressed one after the other."""
    actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
    return [{"type": "key", "id": "keys", "actions": actions}]


class BiDi:
    """WebDriver BiDi as Firefox speaks it, one command at a time.

    `evaluate` returns an expression's value, or its promise's, as JSON.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._ids = socket, itertools.count(1)
        self.send("session.new", capabilities={})
        self._tab = self.send("browsingContext.getTree")["contexts"][0]["context"]
        size = {"width": WIDTH, "height": HEIGHT}
        self.send("browsingContext.setViewport", context=self._tab, viewport=size)

    def send(self, method: str, **params: Any) -> Any:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            reply = json.loads(self._socket.recv(timeout=STEP_S))
            if reply.get("id") == number:
                assert reply["type"] == "success", reply
                return reply["result"]

    def goto(self, url: str) -> None:
        self.send("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def evaluate(self, expression: str) -> Any:
        result = self.send(
            "script.evaluate",
            expression=f"(async () => JSON.stringify(await ({expression})))()",
            target={"context": self._tab},
            awaitPromise=True,
        )
        assert result["type"] == "success", result
        return json.loads(result["result"].get("value", "null"))

    def press(self, keys: str) -> None:
        self.send("input.performActions", context=self._tab, actions=_actions(keys))

    def screenshot(self) -> bytes:
        taken = self.send("browsingContext.captureScreenshot", context=self._tab)
        return base64.b64decode(taken["data"])


class WebDriver:
    """WebDriver as WebKit's driver speaks it."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=STEP_S, trust_env=False)
        options = {"binary": str(MINI_BROWSER), "args": ["--automation"]}
        wanted = {"capabilities": {"alwaysMatch": {"webkitgtk:browserOptions": options}}}
        made = self._http.post("/session", json=wanted).json()["value"]
        self._path = f"/session/{made['sessionId']}"

    def send(self, method: str, path: str, **body: Any) -> Any:
        sent = body if method == "POST" else None
        reply = self._http.request(method, f"{self._path}{path}", json=sent)
        assert reply.is_success, reply.text
        return reply.json()["value"]

    def goto(self, url: str) -> None:
        self.send("POST", "/url", url=url)

    def evaluate(self, expression: str) -> Any:
        script = f"return (async () => JSON.stringify(await ({expression})))()"
        return json.loads(self.send("POST", "/execute/sync", script=script, args=[]) or "null")

    def press(self, keys: str) -> None:
        self.send("POST", "/actions", actions=_actions(keys))

    def screenshot(self) -> bytes:
        return base64.b64decode(self.send("GET", "/screenshot"))

    def close(self) -> None:
        self.send("DELETE", "")
        self._http.close()


Driver = BiDi | WebDriver
"""A browser with one tab."""


@contextmanager
def firefox(folder: Path) -> Iterator[Driver]:
    """Run Firefox with a light theme and a profile of its own."""
    profile = folder / "firefox"
    profile.mkdir()
    theme = 'user_pref("layout.css.prefers-color-scheme.content-override", 1);\n'
    webrtc = 'user_pref("media.peerconnection.ice.loopback", true);\n'
    pings = 'user_pref("browser.send_pings", true);\n'  # off, as long as nobody switches it on
    (profile / "user.js").write_text(theme + webrtc + pings)
    arguments = ["--headless", "--no-remote", "--profile", str(profile)]
    log = folder / "firefox.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(FIREFOX), *arguments, "--remote-debugging-port=0", "about:blank"],
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: _bidi_url(log), timeout_s=START_S)
        with connect(f"{_bidi_url(log)}/session", proxy=None, max_size=None) as socket:
            yield BiDi(socket)
    finally:
        process.terminate()
        process.wait(STEP_S)


def _bidi_url(log: Path) -> str:
    found = re.search(r"WebDriver BiDi listening on (ws://\S+)", log.read_text(errors="replace"))
    return found[1] if found else ""


@contextmanager
def webkit(port: int) -> Iterator[Driver]:
    """Run WebKitGTK's small browser on a display of its own."""
    screen = [str(XVFB), "-displayfd", "1", "-screen", "0", f"{WIDTH}x{HEIGHT}x24"]
    display = subprocess.Popen(screen, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert display.stdout is not None
    number = display.stdout.readline().decode().strip()
    environment = {**os.environ, "DISPLAY": f":{number}", "GDK_BACKEND": "x11"}
    process = subprocess.Popen([str(WEBKIT), f"--port={port}"], env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _is_up(url), timeout_s=START_S)
        browser = WebDriver(url)
        yield browser
        browser.close()
    finally:
        for each in (process, display):
            each.terminate()
            each.wait(STEP_S)
        display.stdout.close()


def _is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/status", trust_env=False).is_success
    except httpx.TransportError:
        return False
