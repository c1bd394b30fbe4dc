"""Conversations of `run` and of the line-by-line chat that are saved as on the screen."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.cli._answer import Chat
from gptoss_local.cli._printer import Printer
from gptoss_local.cli._repl_commands import EFFORTS
from gptoss_local.cli.passphrase import open_history
from tui.conversation import Conversation

if TYPE_CHECKING:
    from gptoss_local.api.client import Client


@contextmanager
def saved_conversation(settings: Settings, *, is_continued: bool) -> Iterator[Conversation]:
    history = open_history(settings)
    try:
        conversation = Conversation(history, "", "medium")
        if is_continued:
            last = next(iter(history.chats(limit=1)), None)
            if last is None:
                raise UsageError("there is no chat to continue", hint="Save one: gptoss run --save")
            conversation.open(last.id)
        yield conversation
    finally:
        history.close()


def saved_chat(
    saved: Conversation, client: "Client", printer: Printer, **wishes: Any
) -> "SavedChat":
    """Return a chat that continues a conversation; `wishes` come before its own settings."""
    if wishes["system"] and not saved.turns:
        saved.new(wishes["system"])
    body = saved.request()
    return SavedChat(
        client,
        printer=printer,
        saved=saved,
        system=wishes.pop("system") or saved.instructions,
        options=body["options"] | wishes.pop("options"),
        messages=[m for m in body["messages"] if m["role"] != "system"],
        **wishes,
    )


@dataclass(kw_only=True)
class SavedChat(Chat):
    """Saves each question with its answer in `saved`, a chat of the history."""

    saved: Conversation

    def ask(self, text: str) -> bool:
        n_before = len(self.messages)
        is_whole = super().ask(text)
        self._save(text, n_before)
        return is_whole

    def _save(self, text: str, n_before: int) -> None:
        saved, asked = self.saved, self.saved.last("user")
        n_saved = sum(m["role"] != "system" for m in saved.request()["messages"])
        if n_before >= n_saved:
            asked = None
        elif asked is None or asked.content != text:  # not asked again: the chat was cleared
            saved.new(self.system)
            asked = None
        effort: Any = self.think if self.think in EFFORTS else "medium"
        saved.set_model(self.model, effort)
        saved.ask(text, instead_of=asked)
        if self.answer.phase != "done":
            self.answer.end("stopped")
        saved.keep(saved.begin_answer(), self.answer)
        saved.store()
