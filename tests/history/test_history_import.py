"""Exports of ChatGPT and Open WebUI as people download them."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.talk.history import Exported, History, Turn, exported_in, read_export

pytestmark = pytest.mark.quick


def node(
    parent: str | None, role: str = "", said: Any = None, kind: str = "text", **fields: Any
) -> dict[str, Any]:
    """A node of ChatGPT's tree; without a role it has no message."""
    content = {"content_type": kind, "parts": [said]} if isinstance(said, str) else said
    author: dict[str, Any] = {"role": role, "name": None, "metadata": {}}
    message: dict[str, Any] = {"author": author, "content": content, "recipient": "all",
                               "weight": 1.0, "metadata": {}} | fields  # fmt: skip
    return {"parent": parent, "children": [], "message": message if role else None}


PICTURE = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
THOUGHTS = {"content_type": "thoughts", "thoughts": [{"summary": "Adding", "content": "6 × 7"}]}
MINI = {"model_slug": "gpt-5-mini"}
CHATGPT = {
    "title": "Sums",
    "create_time": 1_700_000_000.5,
    "update_time": 1_700_000_100.25,
    "current_node": "answer",
    "conversation_id": "x",
    "mapping": {
        "root": node(None),
        "system": node("root", "system", ""),
        "context": node("system", "user", {"content_type": "user_editable_context"}),
        "first": node("context", "user", "What is 6 * 7?", create_time=1_700_000_001),
        "old": node("first", "assistant", "43", metadata={"model_slug": "gpt-4"}),
        "thought": node("first", "assistant", THOUGHTS),
        "recap": node("thought", "assistant", {"content_type": "reasoning_recap", "content": "4s"}),
        "call": node("recap", "assistant", {"content_type": "code", "text": "6*7"},
                     recipient="python"),
        "result": node("call", "tool", {"content_type": "execution_output", "text": "42"}),
        "begun": node("result", "assistant", "I ran it.", metadata=MINI),
        "end": node("begun", "assistant", "42 \ue200cite\ue202turn0search1\ue201", metadata=MINI),
        "second": node("end", "user",
                       {"content_type": "multimodal_text", "parts": [PICTURE, "And this?"]}),
        "answer": node("second", "assistant", "A cat."),
        "third": node("end", "user", {"content_type": "multimodal_text", "parts": [PICTURE]}),
        "dog": node("third", "assistant", "A dog."),
        "lost": node("end of it", "user", "In no tree"),
        "end of it": node("lost"),
    },
}  # fmt: skip


def webui(**messages: dict[str, Any]) -> dict[str, Any]:
    """A chat as Open WebUI exports it."""
    tree = {key: {"id": key, "childrenIds": []} | each for key, each in messages.items()}
    history = {"messages": tree, "currentId": "d"}
    return {
        "id": "x", "user_id": "y", "title": "Capitals", "pinned": True, "meta": {"tags": []},
        "created_at": 1_700_000_000, "updated_at": 1_700_000_200,
        "chat": {"title": "Capitals", "models": ["gpt-oss:20b"], "params": {"system": "Be brief."},
                 "history": history, "messages": []},
    }  # fmt: skip


THOUGHT = (
    '<details type="reasoning" done="true" duration="3">\n<summary>Thought for 3 s</summary>\n'
    "&gt; France &amp;\n> Paris\n</details>\n"
)
CALL = '<details type="tool_calls" done="true" name="search">\n<summary>Run</summary>\n</details>\n'
WEBUI = webui(
    a={"parentId": None, "role": "user", "content": "France?", "timestamp": 1_700_000_001,
       "files": [{"type": "image", "url": "data:"}, {"type": "file", "name": "a.pdf"}]},
    b={"parentId": "a", "role": "assistant", "content": f"{THOUGHT}{CALL}Paris.",
       "model": "gpt-oss:20b", "timestamp": 1_700_000_009_000},
    c={"parentId": "a", "role": "assistant", "content": "Lyon?", "model": "llama3"},
    d={"parentId": "b", "role": "user", "content": "<details type=\"x\">mine</details>"},
)  # fmt: skip


def tree(found: Exported) -> dict[int | None, list[tuple[str, str]]]:
    """What follows each turn."""
    (_, turns), *_ = found.chats
    below: dict[int | None, list[tuple[str, str]]] = {}
    for turn in turns:
        below.setdefault(turn.parent_id, []).append((turn.role, turn.content))
    return below


def parsed(*chats: Any) -> Exported:
    return exported_in(io.BytesIO(json.dumps(list(chats)).encode()), "x.json")


def by_text(found: Exported) -> dict[str, Turn]:
    return {turn.content: turn for turn in found.chats[0][1]}


def test_a_conversation_of_chatgpt(tmp_path: Path) -> None:
    found = parsed(CHATGPT)
    chat, turns = found.chats[0]
    said = by_text(found)
    question, answer = said["What is 6 * 7?"], said["I ran it.\n\n42"]
    assert (chat.title, chat.created_s, chat.updated_s) == (
        "Sums",
        1_700_000_000.5,
        1_700_000_100.25,
    )
    assert tree(found) == {
        None: [("user", "What is 6 * 7?")],
        question.id: [("assistant", "43"), ("assistant", "I ran it.\n\n42")],
        answer.id: [("user", "And this?"), ("user", "(image, not imported)")],
        said["And this?"].id: [("assistant", "A cat.")],
        said["(image, not imported)"].id: [("assistant", "A dog.")],
    }
    assert (answer.reasoning, answer.model) == ("Adding\n\n6 × 7", "gpt-5-mini")
    assert question.created_s == 1_700_000_001
    assert chat.leaf_id == said["A cat."].id
    assert found.notes == [
        "Not imported: 1 citation, 1 custom instruction, 2 images, 1 tool call, 1 tool result, "
        "1 unconnected message."
    ]
    history = History(tmp_path / "chats.sqlite3")
    history.new_chat("nano", "low")
    added = history.add_tree(chat, turns)
    assert (added.model, added.updated_s) == ("nano", 1_700_000_100.25)
    assert [t.content for t in history.branch(added.leaf_id)] == [
        "What is 6 * 7?", "I ran it.\n\n42", "And this?", "A cat."
    ]  # fmt: skip
    assert [hit.chat_id for hit in history.search("dog")] == [added.id]


def test_a_chat_of_open_webui() -> None:
    found = parsed(WEBUI)
    chat, turns = found.chats[0]
    said = by_text(found)
    assert [(t.role, t.content, t.reasoning) for t in turns] == [
        ("system", "Be brief.", ""),
        ("user", "France?", ""),
        ("assistant", "Paris.", "France &\nParis"),
        ("user", '<details type="x">mine</details>', ""),
        ("assistant", "Lyon?", ""),
    ]
    assert said["Paris."].parent_id == said["Lyon?"].parent_id == said["France?"].id
    assert (said["Paris."].model, said["Paris."].created_s) == ("gpt-oss:20b", 1_700_000_009)
    assert (chat.title, chat.is_pinned, chat.leaf_id) == ("Capitals", True, turns[3].id)
    assert found.notes == ["Not imported: 1 file, 1 image, 1 tool call."]


def test_early_chats_of_open_webui() -> None:
    body = {"title": "Old", "messages": [{"role": "user", "content": "a"},
                                         {"role": "assistant", "content": "b"}]}  # fmt: skip
    found = parsed({"chat": body, "created_at": 5})
    assert [(t.content, t.parent_id) for t in found.chats[0][1]] == [("a", None), ("b", 1)]


def packed(**files: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/"), data)
    return target.getvalue()


def test_a_zip_with_parts(tmp_path: Path) -> None:
    one = json.dumps([CHATGPT]).encode()
    file = tmp_path / "export.zip"
    data = {"x__conversations-000.json": one, "x__conversations-001.json": b"\xef\xbb\xbf" + one}
    file.write_bytes(packed(**data, **{"user.json": b"{}"}))
    assert len(read_export(file).chats) == 2


def test_chats_that_cannot_be_read_are_named() -> None:
    found = parsed(CHATGPT, {"title": "Odd", "mapping": 5}, WEBUI, 7)
    assert [chat.title for chat, _ in found.chats] == ["Sums", "Capitals"]
    assert found.notes[1:] == [
        "Not a chat that can be read: number 2: mapping must be an object, not a whole number.",
        "Not a chat that can be read: number 4: it must be an object, not a whole number.",
    ]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not an exported chat"),
        (b"[]", "it has no chats"),
        (b"[" * 5000, "not an exported chat"),
        (b'[{"mapping": ' + b"[" * 5000 + b"]", "not an exported chat"),
        (b"PK\x03\x04junk", "cannot be unpacked"),
        (packed(a=b"[]"), "has no conversations.json"),
        (packed(**{"conversations.json": b"[]"})[:-9], "cannot be unpacked"),
        (b"\x89PNG", "not an exported chat"),
    ],
)
def test_what_is_no_export_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        exported_in(io.BytesIO(data), "x.zip")


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptoss_local.talk.history.export._MAX_BYTES", 1 << 20)
    bomb = packed(**{"conversations.json": b" " * (1 << 21)})
    assert len(bomb) < 1 << 13
    with pytest.raises(UsageError, match=r"x\.zip is too large"):
        exported_in(io.BytesIO(bomb), "x.zip")
