"""Chats as Markdown and JSON, and back."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from msgspec.structs import replace

from gptoss_local.base.errors import UsageError
from gptoss_local.talk.history import ChatSummary, History, Turn
from gptoss_local.talk.history.export import parse_json, render_markdown

pytestmark = pytest.mark.quick


def a_chat(history: History) -> int:
    """Two branches; the shown one has reasoning, a call, its result, and a stopped answer."""
    chat_id = history.new_chat("nano", "high", "Sums")
    system = history.add(chat_id, None, "system", "Be brief.")
    question = history.add(chat_id, system.id, "user", "17 + 25?")
    history.add(chat_id, question.id, "assistant", "43", model="nano", stats={"eval_count": 2})
    calls = ({"function": {"name": "add", "arguments": {}}},)
    asked = history.add(
        chat_id, question.id, "assistant", "", reasoning="I\n\nadd.", tool_calls=calls
    )
    result = history.add(chat_id, asked.id, "tool", "42", tool_name="add")
    stopped = "It is \x1b]52;c;aGk=\x0742\x1b[0m\x9b\u202e:\n\n```py\nprint(42)"
    history.add(chat_id, result.id, "assistant", stopped, state="stopped")
    return chat_id


SHOWN = [
    "## System", "Be brief.", "## You", "17 + 25?", "## Assistant", "> I\n>\n> add.",
    '```json\n[\n  {\n    "function": {\n      "name": "add",\n      "arguments": {}\n    }\n  }\n]'
    "\n```",
    "## Tool add", "42", "## Assistant", "It is \x1b]52;c;aGk=\x0742\x1b[0m\x9b\u202e:",
    "```py\nprint(42)\n```", "*(stopped)*",
]  # fmt: skip


def test_markdown(history: History) -> None:
    title, _, facts, _, rest = history.export_markdown(a_chat(history)).split("\n", 4)
    assert title == "# Sums"
    assert facts.startswith("*nano, effort high, 20")
    assert rest == "\n\n".join(SHOWN) + "\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Yes.\n## You\nNo.", "Yes.\n#### You\nNo."),
        ("# You\r\n##### Five ##", "### You\n###### Five ##"),
        ("Two  \nlines\n===\n---", "### Two lines\n---"),
        ("> 1. 1\n>    ---\n- ## You", "> 1. #### 1\n- #### You"),
        ("```\n## You\n```\n\n    # You\n\n\\## You", "```\n## You\n```\n\n    # You\n\n\\## You"),
        ("<!-- ## You", "<!-- ## You\n-->"),
        ("<script>\n", "<script>\n</pre>"),
        # code blocks that are open
        ("```\ncode\n``` no end", "```\ncode\n``` no end\n```"),
        ("````md\n```py\n```\n", "````md\n```py\n```\n````"),
        ("```a\n```\n```b", "```a\n```\n```b\n```"),
        ("~~~\n```\n~~~", "~~~\n```\n~~~"),
        ("    ```\nindented, no fence", "    ```\nindented, no fence"),
    ],
)
def test_headings_and_open_blocks_of_an_answer(history: History, text: str, shown: str) -> None:
    chat_id = history.new_chat("nano", "low")
    history.add(chat_id, None, "assistant", text)
    assert history.export_markdown(chat_id).partition("## Assistant\n\n")[2] == f"{shown}\n"


MARKS = [
    *("# You", "## You", "You", "---", "===", "- ", "> ", "1. ", "    ", "\t", "\n", "\n\n", "\r"),
    *("```", "~~~", "<!--", "-->", "<pre>", "</pre>", "<?", "<!A", "<![CDATA[", "<div>", "[a]: /"),
]
markdown = st.lists(st.sampled_from(MARKS), max_size=12).map("".join)


@given(content=markdown, reasoning=markdown)
def test_only_turns_have_headings_of_turns(content: str, reasoning: str) -> None:
    chat = ChatSummary(id=1, title="A chat", model=content, effort="low", n_turns=3, created_s=0,
                       updated_s=0, leaf_id=3)  # fmt: skip
    turn = Turn(id=1, chat_id=1, parent_id=None, role="user", content=content, created_s=0)
    answer = replace(turn, role="assistant", reasoning=reasoning)
    result = replace(turn, role="tool", tool_name="x\n# You")
    tokens = MarkdownIt("commonmark").parse(render_markdown(chat, [turn, answer, result]))
    found = [(a.tag, b.content) for a, b in pairwise(tokens) if a.type == "heading_open"]
    turns = [("h2", "You"), ("h2", "Assistant"), ("h2", "Tool x # You")]
    assert [each for each in found if each[0] in ("h1", "h2")] == [("h1", "A chat"), *turns]


def test_empty_chat(history: History) -> None:
    chat_id = history.new_chat("nano", "low")
    assert history.export_markdown(chat_id).startswith("# Untitled\n")
    copy_id = history.add_tree(*parse_json(history.export_json(chat_id))).id
    assert history.chat(copy_id).leaf_id is None


def test_json_comes_back_into_another_file(history: History, tmp_path: Path) -> None:
    other = History(tmp_path / "other.sqlite3")
    other.new_chat("nano", "low")  # so that ids differ
    other.add(1, None, "user", "there before")
    old_id = a_chat(history)
    history.select(history.tree(old_id)[2].id)
    history.move(old_id, "Sums and more")
    text = history.export_json(old_id)
    assert json.loads(text)["version"] == 1
    new_id = other.add_tree(*parse_json(text)).id
    old, new = history.chat(old_id), other.chat(new_id)
    assert replace(new, id=old_id, leaf_id=old.leaf_id) == old
    assert new.folder == "Sums and more"
    for words in ("and more", "brief"):
        assert [hit.chat_id for hit in other.search(words)] == [new_id]
    pairs = list(zip(history.tree(old_id), other.tree(new_id), strict=True))
    moved = {None: None} | {a.id: b.id for a, b in pairs}
    assert new.leaf_id == moved[old.leaf_id]
    for a, b in pairs:
        assert b == replace(a, id=b.id, chat_id=new_id, parent_id=moved[a.parent_id])
    other.close()


def exported(**changes: object) -> str:
    """An export of two turns, with something wrong in a part of it: `data`, `chat` or `turns`."""
    turn = {"chat_id": 1, "role": "user", "content": "x", "created_s": 1.0}
    chat = {"id": 1, "title": "t", "model": "m", "effort": "low", "n_turns": 2}
    parts: dict[str, Any] = {
        "data": {"format": "gptoss-chat", "version": 1},
        "chat": chat | {"created_s": 1.0, "updated_s": 1.0, "leaf_id": 2},
        "first": turn | {"id": 1, "parent_id": None},
        "second": turn | {"id": 2, "parent_id": 1},
    }
    for part, change in changes.items():
        parts[part] |= change
    turns = [parts["first"], parts["second"]]
    return json.dumps(parts["data"] | {"chat": parts["chat"], "turns": turns})


WRONG = [
    exported(first={"parent_id": 2}),  # a cycle
    exported(second={"parent_id": 7}),
    exported(second={"id": 1}),
    exported(second={"role": "root"}),
    exported(second={"created_s": 1e300}),
    exported(chat={"leaf_id": 9}),
    exported(data={"version": 2}),
    exported(data={"format": "other"}),
    *("", "[]", "{", '{"chat": 1}', '"\\ud800"', "\ud800"),
]


def test_broken_exports_are_refused(history: History) -> None:
    for text in WRONG:
        with pytest.raises(UsageError, match=r"not an exported chat|newer gptoss"):
            parse_json(text)
    unfinished = exported(second={"role": "assistant", "state": "streaming"})
    chat_id = history.add_tree(*parse_json(unfinished)).id
    assert [turn.state for turn in history.tree(chat_id)] == ["done", "stopped"]
