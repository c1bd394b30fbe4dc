"""Blocks of a growing text: nothing lost, the same however it is cut, whole to Markdown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tui.markdown_blocks import Block, BlockSplitter

_LINES = st.sampled_from(
    ["", "a word", "  ", "# title", "- item", "  more", "2. two", "12", "```py", "```", "~~~~",
     "| a | b |", "|---|---|", "x = `1`", "    code", "-", "*bold*", "1.", "``", "> quoted"]
)  # fmt: skip
_TEXTS = st.one_of(st.text(max_size=80), st.lists(_LINES, max_size=25).map("\n".join))


def split(pieces: list[str]) -> list[Block]:
    splitter = BlockSplitter()
    return [block for piece in pieces for block in splitter.feed(piece)] + splitter.close()


@given(_TEXTS)
def test_blocks_make_the_text_again_at_every_moment(text: str) -> None:
    splitter, done = BlockSplitter(), ""
    for n, character in enumerate(text, 1):
        done += "".join(block.text for block in splitter.feed(character))
        assert done + splitter.open.text == text[:n]
    assert done + "".join(block.text for block in splitter.close()) == text
    assert splitter.open.text == ""


@given(_TEXTS, st.data())
def test_blocks_do_not_depend_on_the_pieces(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert split(pieces) == split([text]) == split(list(text))


ANSWER = """# Sorting

Use `sorted`:
```python
def f(xs):

    return sorted(xs)
```
Then:
- one

  still one
- two

  ```sh
  ls

  ```
1. first

2. second

| a | b |
|---|---|
| 1 | 2 |

The end."""


def test_blocks_of_an_answer() -> None:
    blocks = split([ANSWER])
    assert [block.kind for block in blocks] == [
        "text", "text", "fence", "text", "text", "table", "text"
    ]  # fmt: skip
    assert blocks[2].text == "```python\ndef f(xs):\n\n    return sorted(xs)\n```\n"
    assert blocks[4].text.startswith("- one")
    assert "2. second" in blocks[4].text


def test_blocks_render_as_the_whole_does() -> None:
    markdown = MarkdownIt("commonmark").enable("table")
    apart = "".join(markdown.render(block.text) for block in split([ANSWER]))
    assert apart == markdown.render(ANSWER)


@pytest.mark.parametrize(
    ("text", "kind", "info"),
    [("```python\nx", "fence", "python"), ("~~~\n", "fence", ""), ("| a |", "table", "")],
)
def test_open_block(text: str, kind: str, info: str) -> None:
    splitter = BlockSplitter()
    assert splitter.feed(text) == []
    assert (splitter.open.kind, splitter.fence_info) == (kind, info)
    assert splitter.open.text == text


def test_a_paragraph_is_finished_when_the_next_one_begins() -> None:
    splitter = BlockSplitter()
    assert splitter.feed("One.\n\n") == []
    assert splitter.feed("T") == [Block("text", "One.\n\n")]
    assert splitter.open.text == "T"
