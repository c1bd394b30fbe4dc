"""Blocks of a growing text: nothing lost, the same however it is cut, whole to Markdown."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tui.documents import at_random, every_pair
from tui.markdown_blocks import Block, BlockSplitter
from tui.markdown_rows import parse

pytestmark = pytest.mark.quick

_LINES = st.sampled_from(
    ["", "a word", "  ", "# title", "- item", "  more", "2. two", "12", "```py", "```", "~~~~",
     "| a | b |", "|---|---|", "x = `1`", "    code", "-", "*bold*", "1.", "``", "> quoted", "---",
     "10. ten", "   - nested", "<div>", "<!-- c", "-->", "<b>", "\\[", "\\]", "$$", "```a`b"]
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
        "text", "text", "fence", "text", "item", "item", "item", "item", "text", "text"
    ]  # fmt: skip
    assert blocks[2].text == "```python\ndef f(xs):\n\n    return sorted(xs)\n```\n"
    assert blocks[4].text == "- one\n\n  still one\n"
    assert "```sh" in blocks[5].text
    assert [block.number for block in blocks[4:8]] == [None, None, 1, 2]
    assert [block.ends_blank for block in blocks[4:8]] == [False, False, True, True]


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([1, 1, 1], [1, 2, 3]),
        ([3, 5, 7], [3, 5, 7]),
        ([1, 2, 1], [1, 2, 1]),
    ],
)
def test_numbers_are_those_that_were_typed(typed: list[int], shown: list[int]) -> None:
    blocks = split(["".join(f"{n}. item\n" for n in typed)])
    assert [block.number for block in blocks] == shown


@given(st.lists(_LINES, max_size=4).map("\n".join))
def test_blocks_are_to_markdown_what_the_whole_is(text: str) -> None:
    apart = [token for block in split([text]) for token in tokens_of(block.text)]
    assert apart == tokens_of(text)


def test_all_kinds_of_blocks_are_to_markdown_what_the_whole_is() -> None:
    rng = random.Random(3)
    for text in [*every_pair(rng), *(at_random(rng, 12) for _ in range(20)), ANSWER]:
        text = text.replace("\r", "")
        apart = [token for block in split([text]) for token in tokens_of(block.text)]
        assert apart == tokens_of(text)


def tokens_of(text: str) -> list[tuple[str, str, str]]:
    """What Markdown sees in a text, but for where lists begin and end: items are blocks here."""
    return [
        (token.type, token.content.rstrip("\n"), token.markup)
        for node in parse(text).walk(include_self=False)
        if node.type not in ("bullet_list", "ordered_list")
        for token in (node.to_tokens()[0],)
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [("```python\nx", "fence"), ("~~~\n", "fence"), ("| a |", "text"), ("- a", "item"),
     ("7) a", "item"), ("- - -", "text"), ("```a` b", "text")],
)  # fmt: skip
def test_open_block(text: str, kind: str) -> None:
    splitter = BlockSplitter()
    assert splitter.feed(text) == []
    assert splitter.open.kind == kind
    assert splitter.open.text == text


def test_a_paragraph_is_finished_when_the_next_one_begins() -> None:
    splitter = BlockSplitter()
    assert splitter.feed("One.\n\n") == []
    assert splitter.feed("T") == [Block("text", "One.\n\n")]
    assert splitter.open.text == "T"
