"""The line-by-line chat of `gptoss chat`: a conversation saved as on the screen."""

from dataclasses import dataclass
from typing import Any

from gptoss_local.cli._answer import Chat
from gptoss_local.cli._repl_commands import EFFORTS
from gptoss_local.talk.history import History
from tui.conversation import Conversation


@dataclass(kw_only=True)
class SavedChat(Chat):
    """Saves each question with its answer in `saved`, the chat of the history."""

    history: History
    saved: Conversation

    def ask(self, text: str) -> bool:
        is_whole = super().ask(text)
        self._save(text, len(self.messages) - 2, self.messages[-1], is_whole=is_whole)
        return is_whole

    def _save(self, text: str, n_before: int, answer: dict[str, Any], *, is_whole: bool) -> None:
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
        turn = saved.begin_answer()
        state: Any = "done" if is_whole else "stopped"
        self.history.update(turn.id, content=answer["content"], state=state)
        assert saved.chat_id is not None
        saved.open(saved.chat_id, turn.id)
