"""Shows an answer and its prompt in harmony: messages, token ids, parts the next prompt drops."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from gptoss_local.api.gptoss import HarmonyPiece, Inspection
from gptoss_local.base.printable import printable, shown
from tui.screens.dialog import Dialog

_MAX_CHARS = 4000  # of a message; the ids of longer ones are cut with it
_MAX_IDS = 1000


class InspectorDialog(Dialog[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,f9", "leave", "Leave"),
        Binding("space,t", "ids", "Token ids"),
    ]
    TITLE = "Harmony"
    KEYS = "Space token ids   Esc leave"
    DEFAULT_CSS = """
    InspectorDialog {
        VerticalScroll { height: 1fr; }
        .piece { height: auto; margin: 0 0 1 0; padding: 0 0 0 1; border-left: thick $primary; }
        .piece.-answer { border-left: thick $success; }
        .piece.-dropped { border-left: thick $warning; color: $text-muted; }
    }
    """

    def __init__(self, found: Inspection) -> None:
        super().__init__()
        self._found = found
        self._shows_ids = False
        n_dropped = sum(len(piece.tokens) for piece in found.messages if piece.is_dropped)
        self.sub_title = f"prompt {found.n_tokens:,} tokens"
        if n_answer := found.n_answer_tokens:
            self.sub_title += f", answer {n_answer:,}"
        if n_dropped:
            self.sub_title += f", the next prompt drops {n_dropped:,}"

    def content(self) -> ComposeResult:
        with VerticalScroll():
            for piece in self._found.messages:
                view = Static(self._content(piece), classes="piece", markup=False)
                view.set_class(piece.is_answer, "-answer")
                view.set_class(piece.is_dropped, "-dropped")
                yield view

    def opened(self) -> None:
        self.query_one(VerticalScroll).scroll_end(animate=False)

    def action_ids(self) -> None:
        self._shows_ids = not self._shows_ids
        views = self.query(".piece").results(Static)
        for view, piece in zip(views, self._found.messages, strict=True):
            view.update(self._content(piece))

    def _content(self, piece: HarmonyPiece) -> Content:
        body = ids_text(piece.tokens) if self._shows_ids else cut(shown(piece.text))
        return Content.assemble((heading(piece), "bold"), "\n", body)


def heading(piece: HarmonyPiece) -> str:
    parts = [piece.author]
    parts += [f"channel {piece.channel}"] if piece.channel else []
    parts += [f"to {piece.recipient}"] if piece.recipient else []
    parts += [piece.content_type] if piece.content_type else []
    parts.append(f"{len(piece.tokens):,} tokens")
    parts += ["written by the model"] if piece.is_answer else []
    parts += ["dropped from the next prompt"] if piece.is_dropped else []
    return printable(" · ".join(parts))


def ids_text(tokens: list[int]) -> str:
    more = f" … and {len(tokens) - _MAX_IDS:,} more" if len(tokens) > _MAX_IDS else ""
    return " ".join(map(str, tokens[:_MAX_IDS])) + more


def cut(text: str) -> str:
    if len(text) <= _MAX_CHARS:
        return text
    half = _MAX_CHARS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters …\n{text[-half:]}"
