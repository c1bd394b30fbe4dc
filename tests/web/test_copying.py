"""Tables, what models draw, and what is copied of it: a selection reads as it looks."""

import re

import pytest
from playwright.sync_api import Page, expect

from gptoss_local.talk.history import History
from tests.conftest import RunningServer
from tests.web.answers import LONG_TABLE, TABLE
from tests.web.chatting import ask, last_answer, new_chat, press, prose, until

LONG = "A long cell that says much about what it is good for and where it is used by many people"
ROWS = "".join(f"| Name {n} | {LONG} | {LONG} | short |\n" for n in range(6))
WIDE = f"| Name | Good for | Weak at | Notes |\n|---|---|---|---|\n{ROWS}"
LONG_WORDS = "| " + " | ".join(f"A{'very' * 12}LongName{n}" for n in range(4)) + " |\n"

ANSWER = r"""# Title

Euler: \( e^{i\pi} = -1 \), **bold** and `code`.

3. three
4. four

   - inner *one*

   - inner two

| a, b | n |
|:--|--:|
| **x** \| y | \( x^2 \) |
| `c` "d" | 2 |

```python
    import os


print(1)
```

> [!NOTE]
> Note text.

$$
\int_0^1 x\,dx
$$
"""
COPIED = r"""Title

Euler: $e^{i\pi} = -1$, bold and code.

3. three
4. four
   - inner one
   - inner two

a, b	n
x | y	$x^2$
c "d"	2

    import os


print(1)

Note

Note text.

$$\int_0^1 x\,dx$$"""
CSV = '"a, b",n\nx | y,$x^2$\n"c ""d""",2'
MARKDOWN = '| a, b | n |\n| --- | ---: |\n| **x** \\| y | $x^2$ |\n| `c` "d" | 2 |'
SELECT = """(ends) => getSelection().setBaseAndExtent(
  ...ends.flatMap(([css, at]) => [document.querySelector(css), at]))"""
HTML = """async () => (await (await navigator.clipboard.read())[0].getType("text/html")).text()"""


def show(page: Page, server: RunningServer, text: str, question: str = "Hello") -> None:
    history = History(server.home / "chats.sqlite3")
    made = history.new_chat("nano", "low", "Copied")
    asked = history.add(made, None, "user", question)
    history.add(made, asked.id, "assistant", text, model="nano")
    history.close()
    page.goto(f"{server.url}/#/chat/{made}")
    expect(prose(page).locator(".block").first).to_be_visible()


def copied(page: Page, *ends: tuple[str, int]) -> str:
    page.evaluate(SELECT, list(ends))
    page.keyboard.press("Control+c")
    return str(page.evaluate("navigator.clipboard.readText()"))


def test_a_selection_is_copied_as_it_reads(page: Page, scripted: RunningServer) -> None:
    show(page, scripted, ANSWER, "One\n  two")
    assert copied(page, (".prose", 0), (".prose", 7)) == COPIED
    rich = page.evaluate(HTML)
    for part in (
        "<strong>bold</strong>",
        '<td dir="ltr">',
        r"$e^{i\pi} = -1$",
        "</span> os\n\n\n",
    ):
        assert part in rich
    for part in ("<button", "katex", "class=", "style=", "Copy"):
        assert part not in rich
    whole = copied(page, (".turns", 0), (".turns", 2))
    assert whole == f"One\n  two\n\n{COPIED}"  # and nothing of buttons, figures and reasoning
    assert copied(page, ("ol > li:nth-child(2)", 0), ("table", 1)).startswith("4. four\n   - inner")
    assert copied(page, ("tbody tr", 0), ("tbody tr", 4)) == "x | y\t$x^2$"
    assert copied(page, (".prose pre code", 0), (".prose pre code", 3)).startswith("    import os")
    assert copied(page, ("ol > li > ul li", 0), ("ol > li > ul li em", 1)) == "inner one"  # no mark
    assert copied(page, (".math .katex-html", 0), (".math .katex-html", 1)) == r"$e^{i\pi} = -1$"


def test_answers_questions_and_tables_are_copied_by_buttons(
    page: Page, scripted: RunningServer
) -> None:
    show(page, scripted, ANSWER)
    press(page, "Copy the answer")
    expect(last_answer(page).locator(".icon-check")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == ANSWER
    rich = page.evaluate(HTML)
    assert "<h1" in rich
    assert r"$$\int_0^1 x\,dx$$" in rich
    assert "<button" not in rich
    expect(last_answer(page).locator(".icon-check")).to_have_count(0)
    page.locator(".turn.user").hover()
    press(page, "Copy the message")
    expect(page.locator(".turn.user .icon-check")).to_be_visible()
    table = page.locator(".table-place")
    expect(table.locator(".table-copy")).to_have_css("opacity", "0")
    page.locator(".table").focus()
    expect(table.locator(".table-copy")).to_have_css("opacity", "1")
    for name, text in (("CSV", CSV), ("Markdown", MARKDOWN)):
        button = table.get_by_role("button", name=f"Copy as {name}")
        button.click()
        expect(button).to_have_text("Copied")
        assert page.evaluate("navigator.clipboard.readText()") == text


SIZES = """() => [...document.querySelectorAll(".table")].map((place) => {
  const cells = [...place.querySelectorAll("th")].map((cell) => cell.getBoundingClientRect());
  return { all: place.scrollWidth <= place.clientWidth + 1, fills: place.clientWidth,
    least: Math.min(...cells.map(({ width }) => width)), scrolls: place.matches(".scrolls") };
})"""


@pytest.mark.parametrize("width", [1440, 390])
def test_a_table_fills_its_column_and_scrolls_only_if_it_must(
    page: Page, scripted: RunningServer, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 600})
    small = "| n | m |\n|---|---|\n| 1 | 2 |"
    long = f"{LONG_WORDS}|---|---|---|---|\n{LONG_WORDS}"
    show(page, scripted, f"{WIDE}\n{small}\n\n{long}\n{'x ' * 3000}")
    until(page, "document.querySelector('.scrolls') !== null")
    wide, few, names = page.evaluate(SIZES)
    assert (wide["all"], few["all"], few["fills"]) == (True, True, wide["fills"])
    assert wide["least"] >= 80
    assert (wide["scrolls"], few["scrolls"], names["scrolls"]) == (False, False, True)
    head = page.locator("th").first
    page.locator(".table").first.locator("tr").last.evaluate("row => row.scrollIntoView()")
    expect(head).to_be_in_viewport(ratio=0.9)


COLUMNS = """() => { window.seen = []; const look = () => {
  const heads = [...document.querySelectorAll(".prose th")];
  const rows = document.querySelectorAll(".prose tr").length;
  const lefts = heads.map((head) => Math.round(head.getBoundingClientRect().left));
  if (rows > 3) seen.push(lefts.join());
  requestAnimationFrame(look);
}; look(); }"""


def test_columns_keep_their_places_while_a_table_streams_and_rows_are_made_once(
    page: Page,
) -> None:
    page.evaluate(COLUMNS)
    ask(page, TABLE, waits=False)
    until(page, "document.querySelectorAll('.prose tr').length > 12")
    page.evaluate("window.row = document.querySelectorAll('.prose tr')[5]")
    expect(last_answer(page)).to_have_attribute("aria-busy", "false")
    expect(last_answer(page).locator("tr")).to_have_count(131)
    expect(last_answer(page).locator("td").last).to_have_text(str(129**2))
    assert page.evaluate("row === document.querySelectorAll('.prose tr')[5]")
    assert len(set(page.evaluate("seen"))) == 1
    new_chat(page)


FITS = """[...document.querySelectorAll(".prose th, .prose td")].every((cell) => {
  const words = document.createRange();
  words.selectNodeContents(cell);
  const isBroken = words.getClientRects().length > cell.textContent.split(" ").length;
  return cell.scrollWidth <= cell.clientWidth && !(cell.tagName === "TH" && isBroken);
})"""


def test_a_table_that_streamed_fits_a_phone_that_is_turned(page: Page) -> None:
    """Also while it streams: no word is broken, none lies on another."""
    ask(page, LONG_TABLE, waits=False)
    until(page, "document.querySelectorAll('.prose tr').length > 12")
    for width, height in ((390, 844), (1200, 800), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        n_rows = page.locator(".prose tr").count()
        until(page, f"document.querySelectorAll('.prose tr').length > {n_rows + 8}")
        until(page, FITS)
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 1200, "height": 800})
    until(page, FITS)
    page.set_viewport_size({"width": 390, "height": 844})
    until(page, FITS)


DRAWN = r"""Water \( \ce{2H2 + O2 -> 2H2O} \), bare \ce{H2SO4}, \(\pu{1 kJ mol-1}\), \(\dv{f}{x}\).

\begin{align}
a &= b \\
  &= c \label{x}
\end{align}

It holds: \begin{equation*}E = mc^2\end{equation*}

\begin{itemize}
\item no formula \\
\end{itemize}
"""
LANGUAGES = {
    "powershell": "$x = Get-Item 'a' # c", "bat": "@echo off\nrem c", "Dockerfile": "FROM a:1",
    "nginx": "server { listen 80; }", "cmake": "project(a)", "julia": "function f(x) end",
    "matlab": "x = 'a'; % c", "scala": "val x = 1", "haskell": "f :: Int -> Int", "dart": "var x;",
    "elixir": "def f do end", "protobuf": "message A { int32 b = 1; }", "hcl": 'a = "b"',
    "latex": "\\section{A} % c", "vue": "<a v-if='b'>c</a>", "ps1": "if ($x) { exit 1 }",
}  # fmt: skip


def test_chemistry_environments_and_the_languages_of_windows(
    page: Page, scripted: RunningServer
) -> None:
    blocks = "".join(f"```{name}\n{code}\n```\n\n" for name, code in LANGUAGES.items())
    show(page, scripted, DRAWN + blocks)
    expect(prose(page).locator(".math")).to_have_count(6)
    expect(prose(page).locator(".katex-error")).to_have_count(0)
    expect(prose(page).locator("code.tex")).to_have_text(re.compile(r"itemize\}.*\\\\", re.S))
    for block, code in zip(prose(page).locator(".code").all(), LANGUAGES.values(), strict=True):
        expect(block.locator("[class*=hljs-]").first).to_be_attached()
        expect(block.locator("code")).to_have_text(code)


def test_a_hebrew_table_goes_from_right_to_left(page: Page, scripted: RunningServer) -> None:
    show(
        page, scripted, "| # | שם | Name |\n|---|---|---|\n| 1 | דוד | David |\n| 2 | משה | כן |\n"
    )
    first, *_, last = (cell.bounding_box() for cell in page.locator("th").all())
    assert first
    assert last
    assert first["x"] > last["x"]
    expect(page.locator("td").first).to_have_css("text-align", "right")
