"""The turns of the open chat. Only the last ones are mounted; older ones when they are scrolled to.

PERF: opening a chat costs what is on the screen, however long it is.
"""

from collections.abc import Callable, Sequence

from textual.containers import VerticalScroll

from tui.history import Turn
from tui.widgets.turn_view import AssistantTurnView, TurnView, view_of

_N_FIRST = 8
_N_MORE = 8


class Transcript(VerticalScroll, can_focus=False):
    """Stays at its end while text is added, until the user scrolls up.

    Args:
        place_of: Which of how many siblings a turn is.
    """

    BLANK = True  # PERF: as in AnswerView
    DEFAULT_CSS = """
    Transcript { padding: 1 1 0 1; scrollbar-size-vertical: 1; }
    """

    def __init__(self, place_of: Callable[[int], tuple[int, int]]) -> None:
        super().__init__()
        self._place_of = place_of
        self._older: list[Turn] = []
        self._is_loading = False

    async def open(self, turns: Sequence[Turn]) -> None:
        """Show another branch or chat."""
        with self.app.batch_update():
            await self.remove_children()
            self._older = list(turns[:-_N_FIRST])
            await self.mount_all(self._view(turn) for turn in turns[-_N_FIRST:])
        self.anchor()
        self.call_after_refresh(self._fill)

    async def add(self, turn: Turn) -> TurnView:
        """Append a turn and scroll to it."""
        view = self._view(turn)
        await self.mount(view)
        self.anchor()
        return view

    def views(self) -> list[TurnView]:
        """Those that are mounted, in order."""
        return list(self.query_children(TurnView))

    def show_turn(self, turn: Turn) -> None:
        """Focus a turn, if it is among those that are mounted."""
        for view in self.views():
            if view.turn.id == turn.id:
                view.focus()

    def last_answer(self) -> AssistantTurnView | None:
        answers = [view for view in self.views() if isinstance(view, AssistantTurnView)]
        return answers[-1] if answers else None

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value < 2 and new_value < old_value and self._older and not self._is_loading:
            self._is_loading = True
            self.call_later(self._load_older)

    async def _fill(self) -> None:
        """Mount more while the screen is not full."""
        if self._older and self.virtual_size.height <= self.size.height:
            await self._load_older()
            self.call_after_refresh(self._fill)

    async def _load_older(self) -> None:
        """Mount a few more above; what was in view stays in view."""
        turns, self._older = self._older[-_N_MORE:], self._older[:-_N_MORE]
        old_height = self.virtual_size.height
        await self.mount_all([self._view(turn) for turn in turns], before=0)

        def keep_place() -> None:
            grown = self.virtual_size.height - old_height
            self.scroll_to(y=self.scroll_y + grown, animate=False, immediate=True)
            self._is_loading = False

        self.call_after_refresh(keep_place)

    def _view(self, turn: Turn) -> TurnView:
        return view_of(turn, self._place_of(turn.id))
