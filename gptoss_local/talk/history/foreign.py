"""Exports of ChatGPT and Open WebUI as chats of ours, and what of them cannot be one."""

import html
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from gptoss_local.talk.history.rows import ChatSummary, Role, Turn

_CITED = re.compile("\ue200.*?\ue201", re.DOTALL)  # a citation of ChatGPT
_DETAILS = re.compile(r'<details type="(\w+)"[^>]*>(.*?)</details>\s*', re.DOTALL)
_SUMMARY = re.compile(r"\s*<summary>.*?</summary>\s*", re.DOTALL)
_YEAR_9999 = 253_402_214_400


class _Author(msgspec.Struct):
    role: str = ""


class _Content(msgspec.Struct):
    content_type: str = ""
    parts: list[Any] | None = None
    text: str | None = None
    thoughts: list[dict[str, Any]] | None = None


class _Metadata(msgspec.Struct):
    model_slug: str | None = None
    attachments: list[dict[str, Any]] | None = None


class _Message(msgspec.Struct):
    author: _Author
    content: _Content | None = None
    create_time: float | None = None
    recipient: str | None = None
    metadata: _Metadata | None = None


class _Node(msgspec.Struct):
    message: _Message | None = None
    parent: str | None = None


class ChatGPTChat(msgspec.Struct):
    """A conversation of `conversations.json`: a tree of messages."""

    mapping: dict[str, _Node]
    title: str | None = None
    create_time: float | None = None
    update_time: float | None = None
    current_node: str | None = None


class _WebUIMessage(msgspec.Struct, rename="camel"):
    role: str
    content: str = ""
    id: str = ""
    parent_id: str | None = None
    timestamp: float | None = None
    model: str | None = None
    files: list[dict[str, Any]] | None = None


class _WebUIHistory(msgspec.Struct, rename="camel"):
    messages: dict[str, _WebUIMessage] = {}
    current_id: str | None = None


class _WebUIParams(msgspec.Struct):
    system: str | None = None


class _WebUIBody(msgspec.Struct):
    title: str | None = None
    history: _WebUIHistory | None = None
    messages: list[_WebUIMessage] = []
    params: _WebUIParams | None = None
    system: str | None = None


class WebUIChat(msgspec.Struct):
    """A chat of Open WebUI's export; early ones have a list of messages and no tree."""

    chat: _WebUIBody
    title: str | None = None
    created_at: float | None = None
    updated_at: float | None = None
    pinned: bool | None = None


class _Said(NamedTuple):
    role: Role
    content: str
    reasoning: str = ""
    model: str = ""
    created_s: float | None = None


def read_chatgpt(chat: ChatGPTChat, left_out: Counter[str]) -> tuple[ChatSummary, list[Turn]]:
    nodes = {
        key: (node.parent, _said_there(node.message, left_out) if node.message else None)
        for key, node in chat.mapping.items()
    }
    return _chat(nodes, chat.current_node, chat.title, chat.create_time, chat.update_time, left_out)


def read_webui(chat: WebUIChat, left_out: Counter[str]) -> tuple[ChatSummary, list[Turn]]:
    body, parent = chat.chat, ""
    told = (body.params and body.params.system) or body.system
    nodes: dict[str, tuple[str | None, _Said | None]] = {}
    if told:
        nodes[parent] = (None, _Said("system", told))
    if body.history is not None and body.history.messages:
        current = body.history.current_id
        for key, message in body.history.messages.items():
            nodes[key] = (message.parent_id or "", _said_in_webui(message, left_out))
    else:
        for n, message in enumerate(body.messages):
            nodes[current := f"#{n}"] = (parent, _said_in_webui(message, left_out))
            parent = current
        current = parent
    title, is_pinned = chat.title or body.title, bool(chat.pinned)
    found, turns = _chat(nodes, current, title, chat.created_at, chat.updated_at, left_out)
    return msgspec.structs.replace(found, is_pinned=is_pinned), turns


def _said_there(message: _Message, left_out: Counter[str]) -> _Said | None:
    """Return what a message of ChatGPT says; None for one that only its own tools understand."""
    role, content = message.author.role, message.content or _Content()
    metadata = message.metadata or _Metadata()
    kind, before = content.content_type, left_out.copy()
    text, n_cited = _CITED.subn("", "\n\n".join(_pieces(content, left_out)))
    left_out["file"] += sum(
        not str(each.get("mime_type", each.get("mimeType", ""))).startswith("image/")
        for each in metadata.attachments or []
    )
    text = text.strip() or _instead(role, left_out - before)
    left_out["citation"] += n_cited
    model, when = metadata.model_slug or "", message.create_time
    if kind in ("user_editable_context", "model_editable_context"):
        left_out["custom instruction"] += 1
    elif kind == "thoughts":
        return _Said("assistant", "", text, model, when) if text else None
    elif kind == "reasoning_recap":
        return None  # "Thought for 8 seconds"
    elif role == "tool" or kind in ("execution_output", "system_error"):
        left_out["tool result"] += 1
    elif role == "assistant" and (message.recipient or "all") != "all":
        left_out["tool call"] += 1
    elif not text:
        return None
    else:
        return _said(role, text, left_out, model=model, created_s=when)
    return None


def _pieces(content: _Content, left_out: Counter[str]) -> Iterator[str]:
    if content.text:
        yield f"```\n{content.text}\n```" if content.content_type == "code" else content.text
    for thought in content.thoughts or []:
        words = [str(thought.get(name) or "") for name in ("summary", "content")]
        yield "\n\n".join(filter(None, words))
    for part in content.parts or []:
        if isinstance(part, str):
            yield part
            continue
        kind = str(part.get("content_type", "")) if isinstance(part, dict) else ""
        if kind == "audio_transcription":
            yield str(part.get("text", ""))
        elif kind == "image_asset_pointer":
            left_out["image"] += 1
        else:
            left_out["recording" if "audio" in kind or "video" in kind else "other part"] += 1


def _said_in_webui(message: _WebUIMessage, left_out: Counter[str]) -> _Said | None:
    reasoning: list[str] = []

    def take(found: re.Match[str]) -> str:
        if found[1] == "reasoning":
            lines = html.unescape(_SUMMARY.sub("", found[2])).strip().split("\n")
            reasoning.append("\n".join(re.sub("^> ?", "", line) for line in lines))
        else:
            left_out["tool call"] += 1
        return ""

    text = message.content
    if message.role == "assistant":
        text = _DETAILS.sub(take, text).strip()
    missing = Counter(
        "image" if file.get("type") == "image" else "file" for file in message.files or []
    )
    left_out += missing
    text = text or _instead(message.role, missing)
    if not text and not reasoning:
        return None
    thought, model = "\n\n".join(reasoning), message.model or ""
    return _said(message.role, text, left_out, thought, model, message.timestamp)


def _instead(role: str, missing: Mapping[str, int]) -> str:
    """Return what stands for a question without words, as its answer needs one."""
    return f"({', '.join(missing)}, not imported)" if role == "user" and missing else ""


def _said(
    role: str,
    text: str,
    left_out: Counter[str],
    reasoning: str = "",
    model: str = "",
    created_s: float | None = None,
) -> _Said | None:
    if role == "assistant":
        return _Said("assistant", text, reasoning, model, created_s)
    if role in ("system", "user"):
        return _Said(cast(Role, role), text, created_s=created_s)
    left_out["unknown message"] += 1
    return None


def _chat(
    nodes: Mapping[str, tuple[str | None, _Said | None]],
    current: str | None,
    title: str | None,
    created_s: float | None,
    updated_s: float | None,
    left_out: Counter[str],
) -> tuple[ChatSummary, list[Turn]]:
    began_s = _moment(created_s, 0)
    turns, places = _turns(nodes, began_s, left_out)
    latest_s = max([began_s, *(turn.created_s for turn in turns)])
    return ChatSummary(
        id=0,
        title=title or "",
        model="",
        effort="medium",
        n_turns=len(turns),
        created_s=began_s,
        updated_s=_moment(updated_s, latest_s),
        leaf_id=places.get(current or "", turns[-1].id if turns else None),
    ), turns


def _turns(
    nodes: Mapping[str, tuple[str | None, _Said | None]], began_s: float, left_out: Counter[str]
) -> tuple[list[Turn], dict[str, int | None]]:
    """Return the tree below what says something, and the turn of each node or the one above it.

    Thoughts belong to the answer below them; what is said in several messages is one answer.
    """
    below = defaultdict(list)
    for key, (parent, _) in nodes.items():
        below[parent if parent in nodes and parent != key else None].append(key)
    turns: dict[int, Turn] = {}
    places: dict[str, int | None] = {}
    waiting: list[tuple[str, int | None, str]] = [(key, None, "") for key in reversed(below[None])]
    while waiting:
        key, above, thought = waiting.pop()
        said = nodes[key][1]
        if said is not None:
            thought = "\n\n".join(filter(None, (thought, said.reasoning)))
            is_thought = not said.content and bool(below[key])
            if not is_thought:
                turn_id = len(turns) + 1
                turns[turn_id] = Turn(
                    id=turn_id,
                    chat_id=0,
                    parent_id=above,
                    role=said.role,
                    content=said.content,
                    reasoning=thought if said.role == "assistant" else "",
                    model=said.model,
                    created_s=_moment(said.created_s, began_s),
                )
                above, thought = turn_id, ""
        places[key] = above
        waiting += [(child, above, thought) for child in reversed(below[key])]
    left_out["unconnected message"] += sum(
        said is not None for key, (_, said) in nodes.items() if key not in places
    )
    return _joined(turns, places)


def _joined(
    turns: dict[int, Turn], places: dict[str, int | None]
) -> tuple[list[Turn], dict[str, int | None]]:
    n_below = Counter(turn.parent_id for turn in turns.values())
    now: dict[int | None, int | None] = {None: None}
    joined: dict[int, Turn] = {}
    for turn in turns.values():
        parent_id = now[turn.parent_id]
        before = joined.get(parent_id or 0)
        is_more = before is not None and before.role == turn.role == "assistant"
        if before is not None and is_more and n_below[turn.parent_id] == 1:
            texts = {
                name: "\n\n".join(filter(None, (getattr(before, name), getattr(turn, name))))
                for name in ("content", "reasoning")
            }
            joined[before.id] = msgspec.structs.replace(
                before, model=turn.model or before.model, **texts
            )
            now[turn.id] = before.id
        else:
            joined[turn.id] = msgspec.structs.replace(turn, parent_id=parent_id)
            now[turn.id] = turn.id
    return list(joined.values()), {key: now[place] for key, place in places.items()}


def _moment(value: float | None, otherwise: float) -> float:
    """Return seconds since 1970 of a time that may be in smaller units."""
    if value is None or not value >= 0:
        return otherwise
    while value >= _YEAR_9999 and value != float("inf"):
        value /= 1000
    return value if value < _YEAR_9999 else otherwise
