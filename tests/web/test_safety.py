"""Hostile words stay words, whoever says them; nothing runs and nothing is loaded from elsewhere.

The fixture `open_page` fails a test if its page logs an error, opens a window, breaks the
Content-Security-Policy, or asks another host for anything.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Page, expect

from gptoss_local.server.keys import read_keys, remove_key
from gptoss_local.talk.history import History
from tests.conftest import RunningServer, wait_until
from tests.web.chatting import ask, intercept, press, prose
from tests.web.conftest import OpenPage, Watch

CORPUS = [
    "<script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<svg onload=window.hacked=1><animate onbegin=window.hacked=1 attributeName=x dur=1s>",
    "<svg><style><img src=x onerror=window.hacked=1></style></svg>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--><img src=1 onerror=hacked=1>'>",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=window.hacked=1>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
    "<iframe src='https://evil.example/a'></iframe><object data='https://evil.example/b'></object>",
    "<link rel=stylesheet href=https://evil.example/c><style>@import 'https://evil.example/d'</style>",
    "<base href=https://evil.example/><meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<video src=https://evil.example/e autoplay onloadstart=window.hacked=1></video>",
    "<input autofocus onfocus=window.hacked=1><details open ontoggle=window.hacked=1>",
    "<a href='javascript:window.hacked=1' id=one name=cookie>one</a><form action=https://evil.example>",
    "<div id=app style='position:fixed;inset:0;background:url(https://evil.example/f)'>over</div>",
    "<noscript><p title='</noscript><img src=x onerror=window.hacked=1>'>",
    "<template><script>window.hacked=1</script></template><xmp><img src=x onerror=hacked=1></xmp>",
    "[a](javascript:window.hacked=1) [b](JaVaScRiPt:hacked=1)",
    "[c](data:text/html,<script>window.hacked=1</script>)",
    "[d](vbscript:x) [e](file:///etc/passwd) [f](&#106;avascript:hacked=1)",
    "[g](java\tscript:hacked=1)",
    "[h](//evil.example/g) [i](/api/delete) [j](blob:x)",
    "[k]( https://ok.example 'title\" onclick=\"x')",
    "<javascript:window.hacked=1> <https://ok.example/\"onmouseover=\"window.hacked=1>",
    "![pixel](https://evil.example/pixel.png) ![x](javascript:hacked=1)",
    "![y](data:image/svg+xml,<svg onload=hacked=1>)",
    "![z][img]\n\n[img]: https://evil.example/ref.png\n",
    "```html\n<script>window.hacked=1</script>\n<img src=x onerror=hacked=1>\n```",
    "```\"><img src=x onerror=window.hacked=1>\ncode\n```",
    "`<img src=x onerror=window.hacked=1>` and    \n    <b onclick=window.hacked=1>indented</b>",
    "| <img src=x onerror=hacked=1> | b |\n|---|:-:|\n| <script>hacked=1</script> | x |",
    r"\( \href{javascript:window.hacked=1}{x} \) \( \url{javascript:hacked=1} \)",
    r"\( \includegraphics{https://evil.example/h.png} \)",
    r"\( \htmlClass{bad}{x} \htmlStyle{color:red}{y} \htmlId{app}{z} \)",
    r"\[ \text{<img src=x onerror=window.hacked=1>} \] \( \unicode{x3c}script\unicode{x3e} \)",
    r"$\def\a{\a\a}\a$ and $\rule{99999em}{99999em}$",
    "{{constructor.constructor('window.hacked=1')()}} ${window.hacked=1} <%= hacked %>",
    "\u202egnp.exe\u202c and \x1b]0;title\x07 and \x00 and \ufffe",
    "a" * 3000 + " " + "*" * 500 + "[" * 500 + "<" * 500 + "$" * 400,
]  # fmt: skip
ALL = "\n\n".join(CORPUS)

CHECK = """() => {
  const safe = /^((min-)?width|height|top|bottom|left|right|vertical-align|(margin|padding)-\\w+)$/;
  const framing = /^((background-)?color|border-(\\w+-)?(width|style|color)|position|text-align)$/;
  const isOfKatex = (element) => element.closest(".katex") && [...element.style].every((name) =>
    (safe.test(name) || framing.test(name))
      && !/url|fixed|absolute|sticky/.test(element.style.getPropertyValue(name)));
  const bad = [];
  for (const element of document.querySelectorAll("#app *")) {
    for (const { name, value } of element.attributes) {
      if (name.startsWith("on")) bad.push(`${element.tagName} ${name}`);
      if (name === "style" && element.closest(".prose") && !isOfKatex(element))
        bad.push(`style ${value}`);
      if (name === "src" || name === "srcdoc") bad.push(`${name} ${value}`);
      if (name === "href" && !/^(https?:|mailto:|#\\/chat\\/)/.test(value)) bad.push(value);
      if (name === "id" && element.closest(".prose")) bad.push(`id ${value}`);
    }
    if (element.tagName === "A" && element.closest(".prose")
        && (element.target !== "_blank" || element.rel !== "noopener noreferrer"))
      bad.push(`link ${element.outerHTML}`);
  }
  const tags = "script, img, iframe, object, embed, link, style, form:not(.composer):not(.settings)"
    + ":not(.editor), video, audio, base, meta, template, animate, foreignObject, annotation-xml";
  for (const element of document.querySelectorAll(tags.replaceAll(/(^|, )/g, "$1#app ")))
    bad.push(element.tagName);
  if (window.hacked) bad.push("it ran");
  if (getComputedStyle(document.querySelector("main")).position !== "relative") bad.push("styled");
  return bad;
}"""


def store(server: RunningServer, *, title: str = "", model: str = "nano", **fields: str) -> int:
    """Store a chat in which all of the given text is said by everyone."""
    history = History(server.home / "chats.sqlite3")
    made = history.new_chat(model, "low", title)
    text = fields.get("content", "hello")
    folds = [[0, 5, fields["label"]]] if "label" in fields else []
    question = history.add(made, None, "user", text, stats={"folds": folds})
    call = {"function": {"name": fields.get("tool", "f"), "arguments": {text[:50]: text}}}
    asked = history.add(
        made, question.id, "assistant", "", tool_calls=(call,), model=model, reasoning=text
    )
    result = history.add(made, asked.id, "tool", text, tool_name=fields.get("tool", "f"))
    last = history.add(
        made, result.id, "assistant", text, model=model, stats={"error": text}, state="failed"
    )
    history.update(last.id, reasoning=text)
    history.close()
    return made


def check(page: Page) -> None:
    page.evaluate(
        """() => {
      for (const fold of document.querySelectorAll("details:not([open]) > summary")) fold.click();
      for (const link of document.querySelectorAll(".prose a, .prose code"))
        link.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
    }"""
    )
    assert page.evaluate(CHECK) == []


def test_the_corpus_as_an_answer_a_question_a_result_and_reasoning(
    page: Page, scripted: RunningServer
) -> None:
    made = store(scripted, content=ALL)
    page.goto(f"{scripted.url}/#/chat/{made}")
    prose(page).scroll_into_view_if_needed()  # distant blocks are not drawn yet
    expect(prose(page)).to_contain_text("<script>window.hacked=1</script>")
    expect(prose(page)).to_contain_text("image: pixel · https://evil.example/pixel.png")
    assert "\u202e" not in prose(page).inner_text()
    expect(prose(page)).to_contain_text(r"\u202egnp.exe\u202c and \u001b]0;title\u0007 and")
    check(page)


def test_each_of_the_corpus_while_it_streams(page: Page) -> None:
    """As it arrives, cut anywhere: an open block is as safe as the end."""
    ask(page, "What is the capital of France?")
    for text in CORPUS:
        page.evaluate(
            """async (text) => {
          const { Growing } = await import("/web/markdown.js");
          const place = document.querySelector(".prose");
          const growing = new Growing();
          for (let n = 0; n <= text.length; n += Math.max(1, Math.floor(text.length / 60))) {
            const blocks = growing.update(text.slice(0, n), false);
            place.replaceChildren(...blocks.map((block) => block.make()));
          }
          place.replaceChildren(...growing.update(text, true).map((block) => block.make()));
        }""",
            text,
        )
        assert page.evaluate(CHECK) == [], text


def test_titles_models_tools_labels_files_and_presets(page: Page, scripted: RunningServer) -> None:
    made = []
    for words in CORPUS[:17]:
        line = words.replace("\n", " ")
        label = f"file: {line.replace(']', ')')}"
        made.append(store(scripted, title=line, model=line, tool=line, label=label))
    page.reload()
    rows = [page.locator(f'.sidebar .row a[href="#/chat/{each}"]') for each in reversed(made)]
    expect(rows[0]).to_contain_text("javascript:window.hacked=1")
    for row in rows:
        row.click()
        expect(page.locator(".turn.assistant").last).to_contain_text("hello")
        check(page)
    page.get_by_role("searchbox").fill("hacked")
    expect(page.get_by_label("Found").get_by_role("link").first).to_be_visible()
    assert page.evaluate(CHECK) == []
    name = "<img src=x onerror=window.hacked=1>"
    page.get_by_label("Files", exact=True).set_input_files(
        [{"name": name, "mimeType": "", "buffer": b"x"}]
    )
    expect(page.get_by_label("Attached")).to_contain_text(name)
    assert page.evaluate(CHECK) == []
    tag = {"name": name, "size": 5, "details": {"parameter_size": name}}
    preset = {"name": name, "system": name, "effort": None, "options": {}}
    intercept(page, "**/api/tags", lambda route: route.fulfill(json={"models": [tag]}))
    intercept(
        page, "**/api/gptoss/presets", lambda route: route.fulfill(json={"presets": [preset]})
    )
    press(page, "New chat")
    press(page, "Models")
    expect(page.get_by_label("On this machine")).to_contain_text(name)
    page.keyboard.press("Escape")
    press(page, "System prompt and sampling")
    expect(page.get_by_role("dialog").locator("option").nth(1)).to_have_text(name)
    assert page.evaluate("[document.querySelectorAll('img').length, !!window.hacked]") == [0, False]


def test_a_link_opens_by_a_click_alone_without_a_way_back(page: Page, watch: Watch) -> None:
    ask(page, "Explain it fast")
    watch.expected = ("popup: ",)
    asked: list[dict[str, str]] = []
    page.context.on(
        "request", lambda request: asked.append({"url": request.url, **request.headers})
    )
    with page.expect_popup() as popup:
        prose(page).get_by_role("link", name="the proof").click()
    assert popup.value.evaluate("window.opener") is None
    wait_until(lambda: page.evaluate("1") and asked)
    assert asked[0]["url"] == "https://example.org/proof"
    assert "referer" not in asked[0]


def test_the_policy_forbids_what_would_slip_through(page: Page, watch: Watch) -> None:
    """If a hole were found in all of the above, the browser would still refuse."""
    watch.expected = ("Content Security Policy", "violates")
    blocked: list[tuple[str, str | None]] = []
    page.on("requestfailed", lambda request: blocked.append((request.url, request.failure)))
    page.evaluate(
        """() => { document.body.innerHTML +=
        '<img src="https://evil.example/x.png" onerror="window.hacked = 1">'
        + '<iframe src="https://evil.example/y"></iframe>'
        + '<p style="color: rgb(1, 2, 3)" id="styled">x</p>'; }"""
    )
    refused = page.evaluate("() => fetch('https://evil.example/z').then(() => 'sent', () => 'no')")
    assert refused == "no"
    wait_until(lambda: page.evaluate("1") and blocked)
    assert {failure for url, failure in blocked if "evil" in url} == {"csp"}
    assert page.evaluate("() => window.hacked") is None
    color = page.evaluate("getComputedStyle(document.getElementById('styled')).color")
    assert color != "rgb(1, 2, 3)"
    watch.requests.clear()


def test_a_page_of_another_port_gets_nothing(
    open_page: OpenPage, scripted: RunningServer, watch: Watch, tmp_path: Path
) -> None:
    """In the browser that was let in, with anything it tries."""
    mine = open_page(scripted)
    ask(mine, "Explain it fast")
    (tmp_path / "index.html").write_text("<!doctype html><title>another program</title>")
    with serve_folder(tmp_path) as (url, seen):
        other = mine.context.new_page()  # the same browser, with its cookies
        other.goto(url)
        for path in (
            *("/api/gptoss/chats", "/api/gptoss/chats%0A", "/api/gptoss/chats/1%0A"),
            *("//api/gptoss/chats", "/x/../api/gptoss/chats", "/api/gptoss/presets"),
        ):
            assert read_from(other, scripted.url + path) == "refused", path
        assert read_from(other, f"{scripted.url}/api/gptoss/chats/1/allow%0A", "POST") == "refused"
        assert "gptoss" not in read_from(other, f"{scripted.url}/", "GET", "text/html")
        assert other.evaluate("JSON.stringify(localStorage)") == "{}"
        other.close()
    assert all("cookie" not in {name.lower() for name in headers} for headers in seen)


def test_a_browser_is_let_in_once_by_a_link(
    open_page: OpenPage, scripted: RunningServer, watch: Watch
) -> None:
    watch.expected = ("401", "ERR_INCOMPLETE")
    page = open_page(scripted, is_let_in=False)
    expect(page.get_by_role("dialog")).to_contain_text("The server does not know this browser yet.")
    press(page, "Copy gptoss web")
    expect(page.get_by_role("button", name="Copy gptoss web", exact=True)).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "gptoss web"
    link = scripted.link()
    other = open_page(scripted, link, context=page.context)
    expect(other.get_by_role("dialog")).to_have_count(0)
    assert "open=" not in other.url
    expect(page.get_by_role("dialog")).to_have_count(0)  # the tab next to it is let in, too
    expect(page.locator(".composer textarea")).to_be_visible()
    stranger = open_page(scripted, link, is_let_in=False)
    expect(stranger.get_by_role("dialog")).to_contain_text("This link of gptoss web has been used")
    stranger.goto(scripted.url + scripted.link())  # in the same tab
    expect(stranger.get_by_role("dialog")).to_have_count(0)
    ask(stranger, "What is the capital of France?")
    remove_key(scripted.home / "keys.toml", read_keys(scripted.home / "keys.toml")[-1].name)
    expect(stranger.get_by_role("dialog")).to_contain_text("was taken back by gptoss keys rm")
    expect(stranger.get_by_text("Paris")).to_have_count(0)
    stranger.goto(scripted.url + scripted.link())
    expect(stranger.get_by_role("dialog")).to_have_count(0)


def read_from(page: Page, url: str, method: str = "GET", accept: str = "*/*") -> str:
    """Return the answer that a page's script gets from an address."""
    text: str = page.evaluate(
        """([url, method, accept]) => fetch(url, { method, headers: { accept } })
        .then((reply) => (reply.ok ? reply.text() : "refused"), () => "refused")""",
        [url, method, accept],
    )
    return text


@contextmanager
def serve_folder(folder: Path) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Another program's server on localhost; returns its address and the headers that it gets."""
    seen: list[dict[str, str]] = []

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(dict(self.headers))
            super().do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{server.server_port}/", seen
        finally:
            server.shutdown()
            thread.join()
