"""Previews of HTML and SVG: they run, and whatever runs there reaches nothing outside its frame."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Frame, Page, expect

from gptoss_local.talk.history import History
from tests.conftest import RunningServer
from tests.web.chatting import ask, press
from tests.web.conftest import Watch
from tests.web.test_safety import serve_folder

CALM_MS = 2_000  # in which an attack would have reached its server
ATTACKS = {
    "fetch": "<script>fetch('URL', { mode: 'no-cors' })</script>",
    "xhr": "<script>x = new XMLHttpRequest(); x.open('GET', 'URL'); x.send()</script>",
    "beacon": "<script>navigator.sendBeacon('URL', 'secret')</script>",
    "websocket": "<script>new WebSocket('URL'.replace('http', 'ws'))</script>",
    "events": "<script>new EventSource('URL')</script>",
    "image": "<img src='URL'>",
    "image by script": "<script>new Image().src = 'URL'</script>",
    "set": "<img srcset='URL 1x'>",
    "background": "<body style='background: url(URL)'>text",
    "import": "<style>@import 'URL';</style>",
    "font": "<style>@font-face { font-family: f; src: url(URL) } p { font-family: f }</style><p>x",
    "style": "<link rel='stylesheet' href='URL'>",
    "icon": "<link rel='preload' as='image' href='URL'>",
    "script": "<script src='URL'></script>",
    "module": "<script>import('URL')</script>",
    "frame": "<iframe src='URL'></iframe>",
    "frame in a frame": "<iframe srcdoc=\"<img src='URL'>\"></iframe>",
    "empty frame": "<iframe></iframe><script>new (frames[0].Image)().src = 'URL';"
    "frames[0].fetch('URL', { mode: 'no-cors' })</script>",
    "object": "<object data='URL'></object><embed src='URL'>",
    "video": "<video src='URL' autoplay muted></video>",
    "svg": "<svg><image href='URL'></image><use href='URL#x'></use></svg>",
    "filter": "<svg width='9' height='9'><filter id='f'><feImage href='URL'/></filter>"
    "<rect width='9' height='9' filter='url(#f)'/></svg>",
    "form": "<form action='URL'><input name='q'></form><script>document.forms[0].submit()</script>",
    "post": "<form action='URL' method='post'></form><script>document.forms[0].submit()</script>",
    "refresh": "<meta http-equiv='refresh' content='0;url=URL'>",
    "go": "<script>location = 'URL'</script>",
    "go, by a link": "<a href='URL'>x</a><script>document.links[0].click()</script>",
    "go, all of it": "<script>top.location = 'URL'</script>",
    "go, by a target": "<a href='URL' target='_top'>x</a>"
    "<script>document.links[0].click()</script>",
    "base": "<base href='URL'><img src='x.png'>",
    "window": "<script>open('URL')</script>",
    "prefetch": "<link rel='prefetch' href='URL'>",
    "speculation": '<script type="speculationrules">'
    '{"prefetch": [{"source": "list", "urls": ["URL"], "eagerness": "immediate"}]}</script>',
    "webrtc": "<script>c = new RTCPeerConnection({ iceServers: [{ urls: 'STUN' }] });"
    "c.createDataChannel('x'); c.createOffer().then((o) => c.setLocalDescription(o))</script>",
    "webrtc of a frame": '<iframe srcdoc="<script>c = new RTCPeerConnection('
    "{ iceServers: [{ urls: 'STUN' }] }); c.createDataChannel('x');"
    'c.createOffer().then((o) => c.setLocalDescription(o))</script>"></iframe>',
    "webrtc by an address": '<iframe src="javascript:c = new RTCPeerConnection('
    "{ iceServers: [{ urls: 'STUN' }] }); c.createDataChannel('x');"
    'c.createOffer().then((o) => c.setLocalDescription(o))"></iframe>',
}


class Listener:
    """A server that notes what reaches it by TCP or UDP.

    Chromium connects to where a frame would go before it asks the policies, and then sends nothing.
    """

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=each) for each in (self._accept, self._receive)]
        for thread in self._threads:
            thread.start()

    def aim(self, name: str) -> str:
        """Return the code of an attack on this server."""
        url = f"http://localhost:{self._tcp.getsockname()[1]}/{list(ATTACKS).index(name)}/"
        stun = f"stun:127.0.0.1:{self._udp.getsockname()[1]}"
        return ATTACKS[name].replace("URL", url).replace("STUN", stun)

    def reached(self) -> list[str]:
        """Return the attacks that reached it."""
        return [name for k, name in enumerate(ATTACKS) if str(k) in self.seen] + sorted(
            self.seen & {"by UDP"}
        )

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._tcp.accept()
            except OSError:
                return
            threading.Thread(target=self._read, args=(connection,)).start()

    def _read(self, connection: socket.socket) -> None:
        connection.settimeout(5)
        with connection, suppress(OSError):
            if line := connection.recv(4096).decode(errors="replace"):
                self.seen.add(line.split("/")[1])

    def _receive(self) -> None:
        while self._udp.recv(2048) != b"end":
            self.seen.add("by UDP")

    def close(self) -> None:
        self._tcp.shutdown(socket.SHUT_RDWR)
        self._tcp.close()
        self._udp.sendto(b"end", self._udp.getsockname())
        for thread in self._threads:
            thread.join(5)
        self._udp.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def opened(page: Page, server: RunningServer, *codes: str, language: str = "html") -> None:
    """Open a chat with blocks of code."""
    history = History(server.home / "chats.sqlite3")
    chat = history.new_chat("nano", "low", "A preview")
    question = history.add(chat, None, "user", "Draw it")
    text = "\n\n".join(f"```{language}\n{code}\n```" for code in codes)
    history.add(chat, question.id, "assistant", f"{text}\n\nThere.")
    history.close()
    page.goto(f"{server.url}/#/chat/{chat}")
    expect(page.locator("button.copy")).to_have_count(len(codes))


def shown(page: Page, server: RunningServer, *codes: str, language: str = "html") -> Frame:
    """Open previews of blocks of code; return the last frame."""
    opened(page, server, *codes, language=language)
    for button in page.locator("button.preview").all():
        button.evaluate("(button) => button.click()")
    expect(page.locator(".code iframe")).to_have_count(len(codes))
    return page.frames[-1]


def test_no_attack_reaches_anything(
    page: Page, scripted: RunningServer, watch: Watch, listener: Listener
) -> None:
    watch.expected = ("",)  # the browser says what it refuses
    shown(page, scripted, *map(listener.aim, ATTACKS))
    page.wait_for_timeout(CALM_MS)
    assert listener.reached() == []
    assert page.url.startswith(scripted.url)
    assert len(page.context.pages) == 1
    watch.requests.clear()  # also lists those that the browser refused


def test_each_attack_succeeds_in_a_page_of_its_own(
    browser: Browser, listener: Listener, tmp_path: Path
) -> None:
    context = browser.new_context()
    failed = []
    with serve_folder(tmp_path) as (url, _):
        for k, name in enumerate(ATTACKS):
            (tmp_path / f"{k}.html").write_text(f"<!doctype html>{listener.aim(name)}")
            listener.seen.clear()
            page = context.new_page()
            page.goto(f"{url}{k}.html", wait_until="commit")
            for _ in range(200):
                if not listener.seen:
                    page.wait_for_timeout(50)
            if not listener.seen:
                failed.append(name)
            page.close()
    context.close()
    assert failed == []


SECRETS = """<p id="found"></p><script>
const found = [];
for (const look of [
  () => parent.document.title, () => top.location.href, () => localStorage.length,
  () => sessionStorage.length, () => document.cookie, () => indexedDB.open("x").onerror,
  () => parent.frames[0].document.nodeName && parent.frames["x"].name, () => frameElement.id,
  () => caches.keys().then, () => open("about:blank").name, () => eval("1"),
]) try { found.push(String(look())); } catch (error) { found.push("refused"); }
document.getElementById("found").textContent = found.join();
parent.postMessage({ type: "key", role: "user" }, "*");
alert("hello");
</script>"""


def test_what_runs_has_nothing_of_the_page(
    page: Page, scripted: RunningServer, watch: Watch
) -> None:
    watch.expected = ("",)
    frame = shown(page, scripted, SECRETS)
    words = frame.locator("#found").inner_text().split(",")
    assert set(words) <= {"refused", "null", "undefined"}
    assert page.locator(".code iframe").get_attribute("sandbox") == "allow-scripts"
    assert "alert" not in watch.problems
    token = page.evaluate("localStorage.getItem('gptoss-token')")
    headers = f"{{ headers: {{ 'x-gptoss-token': '{token}' }} }}"
    api = f"fetch('{scripted.url}/api/gptoss/chats', {headers})"
    assert frame.evaluate(f"{api}.then(() => 'read', () => 'no')") == "no"


def test_a_preview_is_drawn_by_a_click_alone(page: Page, scripted: RunningServer) -> None:
    frame = shown(
        page, scripted, "<h1>Hello</h1><script>document.body.append('It', ' runs')</script>"
    )
    expect(frame.locator("body")).to_contain_text("It runs")
    expect(page.locator(".code pre")).to_be_hidden()
    press(page, "Code")
    expect(page.locator(".code iframe")).to_have_count(0)
    expect(page.locator(".code pre")).to_contain_text("<h1>Hello</h1>")
    press(page, "Preview")
    expect(page.frame_locator(".code iframe").locator("h1")).to_have_text("Hello")


def test_an_svg_is_drawn(page: Page, scripted: RunningServer) -> None:
    code = (
        '<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10">'
        '<rect width="10" height="10" fill="red"/></svg>'
    )
    box = shown(page, scripted, code, language="xml").locator("rect").bounding_box()
    assert box is not None
    assert box["width"] > 100


@pytest.mark.parametrize(
    ("language", "code"),
    [("python", "print('<svg>')"), ("xml", "<a/>"), ("html", "<p>" + "x" * 500_000)],
)
def test_other_code_has_no_preview(
    page: Page, scripted: RunningServer, language: str, code: str
) -> None:
    opened(page, scripted, code, language=language)
    expect(page.locator("button.preview")).to_have_count(0)


def test_a_loop_without_an_end_is_closed(page: Page, scripted: RunningServer) -> None:
    """Chromium runs such a frame in a process of its own."""
    shown(page, scripted, "<script>while (true);</script>")
    press(page, "Code")
    expect(page.locator(".code iframe")).to_have_count(0)
    ask(page, "What is the capital of France?")
