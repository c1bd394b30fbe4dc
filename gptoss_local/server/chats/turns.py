"""Turns that the server adds to a chat: answers, and the calls between them."""

from typing import Unpack

from gptoss_local.talk.history import History, Role, Turn
from gptoss_local.talk.history.turn import TurnFields


def begin_answer(history: History, asked: Turn, *, is_shown: bool = False) -> list[Turn]:
    """Add an answer that streams; return the branch down to it."""
    chat = history.chat(asked.chat_id)
    made_with: TurnFields = {"model": chat.model, "effort": chat.effort, "state": "streaming"}
    turn = _add(history, asked, "assistant", **made_with)
    return history.select(turn.id) if is_shown else history.branch(turn.id)


def begin_call(history: History, after: Turn, name: str) -> list[Turn]:
    """Add the result of a call, which streams until it is there; return the branch down to it."""
    turn = _add(history, after, "tool", tool_name=name, state="streaming")
    return history.branch(turn.id)


def _add(history: History, after: Turn, role: Role, **fields: Unpack[TurnFields]) -> Turn:
    """Add a turn without leaving a branch that the user has gone to meanwhile."""
    leaf_id = history.chat(after.chat_id).leaf_id
    turn = history.add(after.chat_id, after.id, role, "", **fields)
    if leaf_id is not None and leaf_id != after.id:
        history.select(leaf_id)
    return turn
