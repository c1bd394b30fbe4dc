"""Chats and turns as the store returns them: frozen, detached from the file."""

from typing import Annotated, Any, Literal, TypedDict

import msgspec

Role = Literal["system", "user", "assistant", "tool"]

Moment = Annotated[float, msgspec.Meta(ge=0, lt=253_402_214_400)]  # until the year 9999
"""Seconds since 1970."""

TurnState = Literal["streaming", "done", "stopped", "failed"]
"""`stopped`: by the user, or because the process that wrote it died."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One message in the tree of a chat.

    Attributes:
        parent_id: The turn that it follows; None for the first of a chat. Turns of one parent
            are versions of each other: an edited question, a regenerated answer.
        tool_calls: As `message.tool_calls` of Ollama's API.
        tool_name: Of a `tool` turn: the tool that was called.
        stats: Counts and times of the answer's last frame, by their names there.
    """

    id: int
    chat_id: int
    parent_id: int | None
    role: Role
    content: str
    reasoning: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()
    tool_name: str = ""
    model: str = ""
    effort: str = ""
    state: TurnState = "done"
    stats: dict[str, Any] = {}
    created_s: Moment


class TurnFields(TypedDict, total=False):
    reasoning: str
    tool_calls: tuple[dict[str, Any], ...]
    tool_name: str
    model: str
    effort: str
    state: TurnState
    stats: dict[str, Any]


class ChatSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A chat without its turns.

    Attributes:
        updated_s: When a turn was last added.
        leaf_id: Last turn of the branch that is shown; None in an empty chat.
        options: Of its requests, by their names in Ollama's API, and `truncate`.
        folder: Where the page lists it; empty: by its age.
    """

    id: int
    title: str
    model: str
    effort: str
    n_turns: int
    created_s: Moment
    updated_s: Moment
    leaf_id: int | None
    options: dict[str, Any] = {}
    preset: str = ""
    is_pinned: bool = False
    folder: str = ""


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A place that a search found.

    Attributes:
        turn_id: None if the chat's title matches.
        snippet: The words around the matches on one line, each match between `MATCH_START` and
            `MATCH_END`; without other control characters.
    """

    chat_id: int
    turn_id: int | None
    title: str
    snippet: str
    created_s: Moment
