"""Answers as people see them, and that streaming them gives the same as the whole at once."""

import random
import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Page, expect

from tests.prose import PROSE, Piece
from tests.tui.documents import at_random, every_pair, pieces
from tests.tui.test_markdown import LINES
from tests.web.answers import RICH
from tests.web.chatting import ask, prose, until
from tests.web.conftest import Watch

RENDER = """async ([texts]) => {
  const { Growing } = await import("/web/markdown.js");
  const html = (blocks) => blocks.map((block) => {
    const place = document.createElement("div");
    place.append(block.make());
    return place.innerHTML;
  });
  const growing = new Growing();
  let blocks = [], text = "", nKept = 0, nChanged = 0;
  for (const piece of texts) {
    const before = blocks;
    text += piece;
    blocks = growing.update(text, false);
    for (const [k, block] of before.slice(0, -2).entries())
      block === blocks[k] ? nKept++ : nChanged++;
  }
  const streamed = html(growing.update(text, true));
  const whole = html(new Growing().update(text, true));
  const plain = html(new Growing().update(text + "\\n\\n", true)).length;
  return { streamed, whole, nKept, nChanged, plain };
}"""


def test_code_tables_mathematics_and_lists(page: Page) -> None:
    ask(page, "Explain it fast")
    said = prose(page)
    expect(said.locator("pre code .hljs-keyword").first).to_have_text("def")
    expect(said.locator(".code-head span")).to_have_text("python")
    expect(said.locator("table tr")).to_have_count(5)
    expect(said.locator("td.right").first).to_have_css("text-align", "right")
    expect(said.locator("math[display=block] mfrac").first).to_be_visible()
    expect(said.locator("math")).to_have_count(5)
    expect(said.locator(".katex-html .mfrac").first).to_be_visible()
    expect(said.locator("p", has_text="once cost $5 or $6.")).to_be_visible()
    expect(said.locator("ol > li")).to_have_count(2)
    expect(said.locator("blockquote")).to_contain_text("diverges")
    expect(said.get_by_text("日本語でも読めます。")).to_be_visible()
    link = said.get_by_role("link", name="the proof")
    assert link.get_attribute("target") == "_blank"
    assert link.get_attribute("rel") == "noopener noreferrer"
    assert link.get_attribute("href") == "https://example.org/proof"
    copied = page.evaluate(COPY)
    assert r"x_{n+1} = x_n - \frac{f(x_n)}{f'(x_n)}" in copied
    assert "$f(x) = x^2 - a$" in copied


COPY = """() => {
  getSelection().selectAllChildren(document.querySelector(".turn.assistant .prose"));
  const clipboardData = new DataTransfer();
  document.dispatchEvent(new ClipboardEvent("copy", { clipboardData, bubbles: true }));
  return clipboardData.getData("text/plain");
}"""

WHOLE = [  # a text, and a part of its HTML
    ("See [the page][1].\n\nMore.\n\n[1]: https://a.test/b\n", ['href="https://a.test/b"']),
    (
        r"Broken \( \frac{a \) here, open \( here, \[ there, and $x$y$ too." + "\n",
        [r'<code class="tex">\( \frac{a \)</code>', r"open \( here, \[ there", "$x$y$"],
    ),
    ("```<i>c</i>\nx\n```\n", ["<span>&lt;i&gt;c&lt;/i&gt;</span>"]),
    (
        "10**6 is **big**, *it* too, **太字**です, __init__ and **kwargs",
        [
            "10**6 is <strong>big</strong>, <em>it</em> too, <strong>太字</strong>です, ",
            "</strong>です, __init__ and **kwargs",
        ],
    ),
    (  # a bar in code ends no cell, and none is dropped
        "> | a | `b|c` |\n> |---|---|\n> | `ps | grep x` | y |\n> | `a \\| b` | *y* | z |\n"
        "> | ` | ` |\n> | one || `x|y` |",
        [
            "<code>b|c</code></th>",
            '<code>ps | grep x</code></td>\n<td dir="ltr">y</td>',
            '<code>a | b</code></td>\n<td dir="ltr"><em>y</em> | z</td>',
            "<td>`</td>\n<td>`</td>",
            '<td dir="ltr">one</td>\n<td dir="ltr">| <code>x|y</code></td>',
        ],
    ),
    (
        r"\[ \d+ \], \((?:a|b)\), \(.*\), \( \)",
        [rf'<code class="tex">{tex}</code>' for tex in (r"\[ \d+ \]", r"\((?:a|b)\)", r"\( \)")],
    ),
]


def test_definitions_broken_formulas_languages_and_emphasis(page: Page) -> None:
    for text, parts in WHOLE:
        found = page.evaluate(RENDER, [[text[:10], text[10:30], text[30:]]])
        for part in parts:
            assert part in found["streamed"][0], text


WRITTEN = r"""| a | b |
|---|---|
| one<br>two | H<sub>2</sub>O and x<sup>2</sup>, press <kbd>Ctrl</kbd> |

- [ ] open **task**
- [x] done
- [link] is none

A fact.[^1] And <mark>more</mark>, 1 < 2,
<b>bold *and* more</b>, </sub>, <sub>open, <i onclick=x>y</i>.

[^1]: Where it is from,
    in two lines.
[^long-name]: https://example.org/a

> [!WARNING]
> Take care.

> [!note] no callout

<details>
<summary>Show **it**</summary>

Hidden `code`:

```python
x = "</details>"
```

<details open><summary>Inner</summary>

- deep

</details>
</details>

After.

مرحبا بالعالم hello

- שלום
- two

Hello שלום
"""


def test_what_models_write_beside_commonmark(page: Page) -> None:
    blocks = page.evaluate(RENDER, [[WRITTEN]])
    assert blocks["streamed"] == blocks["whole"]
    page.evaluate(
        """(blocks) => { const place = document.createElement("div"); place.id = "written";
        place.className = "prose"; document.querySelector("main").prepend(place);
        place.innerHTML = blocks.join(""); }""",
        blocks["whole"],
    )
    said = page.locator("#written")
    assert said.locator("td").first.inner_text() == "one\ntwo"
    for tag, text in (("td sub", "2"), ("td sup", "2"), ("kbd", "Ctrl"), ("mark", "more")):
        expect(said.locator(tag).first).to_have_text(text)
    expect(said.locator("b")).to_have_text("bold and more")
    expect(said).to_contain_text("1 < 2")
    expect(said).to_contain_text("</sub>, <sub>open, <i onclick=x>y</i>.")
    expect(said.locator("li.task")).to_have_text(["☐ open task", "☑ done"])
    expect(said.locator("li", has_text="is none")).to_have_text("[link] is none")
    expect(said.locator("p > sup").first).to_have_text("1")
    notes = said.locator(".footnote")
    expect(notes).to_have_text(
        [re.compile(r"^1 Where it is from,\s+in two lines.$"), "long-name https://example.org/a"]
    )
    callout = said.locator(".callout.warning")
    expect(callout.locator("p")).to_have_text(["Warning", "Take care."])
    expect(said.locator("blockquote:not(.callout)")).to_have_text("[!note] no callout")
    outer = said.locator("details").first
    expect(outer.locator("> summary strong")).to_have_text("it")
    expect(outer.locator("> details[open] > ul > li")).to_have_text("deep")
    expect(outer.locator("pre")).to_have_text('x = "</details>"\n')
    expect(page.locator("#written > p", has_text="After.")).to_be_visible()
    for text, direction in (("مرحبا", "rtl"), ("Hello", "ltr"), ("After.", "ltr")):
        expect(said.locator("p", has_text=text).last).to_have_css("direction", direction)
    expect(said.locator("li", has_text="שלום")).to_have_css("direction", "rtl")


def test_a_stream_ends_as_the_whole_text_and_keeps_finished_blocks(page: Page) -> None:
    """Over every kind of block after every other one, cut at random places."""
    rng = random.Random(40)
    documents = [*every_pair(rng, 12), *(at_random(rng, 8) for _ in range(20)), RICH]
    n_kept = n_changed = 0
    for document in documents:
        found = page.evaluate(RENDER, [list(pieces(rng, document, 60))])
        assert found["streamed"] == found["whole"], document
        n_kept, n_changed = n_kept + found["nKept"], n_changed + found["nChanged"]
    assert n_kept > 2_000
    assert n_changed == 0


def test_an_open_block_of_code_is_not_painted_again(page: Page) -> None:
    """Its lines so far stay the same nodes while more of them arrive."""
    ask(page, "Write it slowly", waits=False)
    until(page, "document.querySelectorAll('.piece').length > 1")
    page.evaluate("window.first = document.querySelector('.piece')")
    until(page, "document.querySelectorAll('.piece').length > 3")
    assert page.evaluate("window.first === document.querySelector('.piece')")
    expect(prose(page).locator(".hljs-keyword").first).to_be_visible()
    expect(prose(page).locator(".piece")).to_have_count(0)


TEXTS = """async (texts) => {
  const { Growing } = await import("/web/markdown.js");
  return texts.map((text) => {
    const place = document.createElement("div");
    place.append(...new Growing().update(text, true).map((block) => block.make()));
    for (const each of place.querySelectorAll(".katex-mathml")) each.remove();
    return place.textContent.trim();
  });
}"""


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(PROSE, min_size=30, max_size=60))
def test_each_digit_letter_and_operator_is_on_the_page(page: Page, lines: list[Piece]) -> None:
    assert page.evaluate(TEXTS, [markdown for markdown, _ in lines]) == [
        shown for _, shown in lines
    ]


def test_text_is_there_without_the_part_that_renders_it(page: Page, watch: Watch) -> None:
    ask(page, "Explain it fast")
    watch.expected = ("markdown.js", "Failed to load", "ERR_FAILED")
    page.route("**/web/markdown.js", lambda route: route.abort())
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("A part of this page could not be loaded.")
    expect(prose(page)).to_contain_text("**Newton's method** finds a root")


DRAWN = re.compile(r"^(?:[-*>]|\d+[.)]) |^# |^\* |\$[a-zx]|<\w|\[[ x^]")


def test_signs_stay_as_they_were_written(page: Page) -> None:
    """As in the terminal, but for what is drawn otherwise: marks of lists and formulas."""
    pairs = [line.partition("\t")[::2] for line in LINES]
    ways = {markdown: shown or markdown for markdown, shown in pairs if not DRAWN.search(markdown)}
    assert len(ways) > 180
    seen = page.evaluate(TEXTS, list(ways))
    assert dict(zip(ways, seen, strict=True)) == ways
