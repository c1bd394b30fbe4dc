"""Titles of saved chats, written by the model after its first answer.

The request continues the chat's own prompt, so almost nothing of it is read again.
"""

import re
from contextlib import aclosing

import msgspec

from gptoss_local.errors import ChatNotFoundError
from gptoss_local.events import ContentDelta, Done
from gptoss_local.models.store import find_model
from gptoss_local.runner.elsewhere import RemoteModel
from gptoss_local.runner.loading import LoadedModel
from gptoss_local.runner.manager import ModelManager
from gptoss_local.server.access import current_caller
from gptoss_local.server.chats.asked import asked_of
from gptoss_local.server.chats.store import ChatStore
from gptoss_local.server.chats.toolboxes import Toolboxes
from gptoss_local.talk.history import ChatSummary, History, Turn, is_temporary
from gptoss_local.talk.history.plain import one_line

QUESTION = "Write a title for this conversation, in its language, of at most six words."
_BEGINNING = "Title:"
_MAX_TOKENS, _MAX_WORDS, _MAX_CHARS = 30, 8, 60


async def write_title(
    manager: ModelManager, store: ChatStore, toolboxes: Toolboxes, leaf: Turn, owner: str
) -> bool:
    """Title the chat of a first answer, unless a person has; False if it keeps its title."""

    def read(history: History) -> tuple[ChatSummary, list[Turn], bool]:
        return history.chat(leaf.chat_id), history.branch(leaf.id), history.has_title(leaf.chat_id)

    if is_temporary(leaf.chat_id):
        return False
    try:
        chat, branch, has_title = await store.call(read)
        is_first = len([turn for turn in branch if turn.role == "user"]) == 1
        if has_title or not is_first or branch[-1].state != "done" or branch[-1].tool_calls:
            return False
        title = await _ask(manager, toolboxes, chat, branch, owner)
        return bool(title) and await store.call(lambda history: history.give_title(chat, title))
    except ChatNotFoundError:
        return False


async def _ask(
    manager: ModelManager, toolboxes: Toolboxes, chat: ChatSummary, branch: list[Turn], owner: str
) -> str:
    entry = find_model(chat.model, manager.settings)
    usable: list[LoadedModel | RemoteModel] = [*manager.loaded, *manager.remote]
    if entry.embedded or entry.name not in [model.entry.name for model in usable]:
        return ""  # a toy, or one that would be loaded again
    last = branch[-1]
    question = msgspec.structs.replace(last, id=0, role="user", content=QUESTION, reasoning="")
    begun = msgspec.structs.replace(question, id=-1, role="assistant", content=_BEGINNING)
    async with toolboxes.use(chat, branch) as toolbox:
        asked, n_ctx = asked_of(chat, [*branch, question, begun], toolbox, entry.defaults)
    asked = msgspec.structs.replace(
        asked,
        owner=owner,
        priority=current_caller().priority - 1,
        max_tokens=_MAX_TOKENS,
        stop=(),
        has_next_turn=False,
        may_grow=False,
        reports_prefill=False,
    )
    text, reason = "", ""
    async with aclosing(manager.answer(entry, asked, n_ctx=n_ctx)) as events:
        async for event in events:
            if isinstance(event, ContentDelta):
                text += event.text
            elif isinstance(event, Done):
                reason = event.reason
    return clean(text) if reason == "stop" else ""


def clean(text: str) -> str:
    title = one_line(text.removeprefix(_BEGINNING)).strip(" *_#`\"'“”„«».")
    is_title = len(title) <= _MAX_CHARS and len(title.split()) <= _MAX_WORDS
    return title if is_title and re.search(r"\w", title) else ""
