"""The turns of the open chat. PERF: a screenful is mounted, others when they are scrolled to."""

import asyncio
from collections.abc import Callable, Sequence

from textual.containers import VerticalScroll
from textual.widget import Widget

from gptoss_local.talk.history import Turn
from gptoss_local.talk.tools import Page
from tui.widgets.answer_view import AnswerView
from tui.widgets.question import CallView
from tui.widgets.turn_view import AssistantTurnView, TurnView, view_of

_N_FIRST = 8
_N_MORE = 8


class Transcript(VerticalScroll, can_focus=False):
    """Stays at its end while text is added, until the user scrolls up."""

    BLANK = True  # PERF: as in AnswerView
    DEFAULT_CSS = "Transcript { padding: 1 1 0 1; scrollbar-size-vertical: 1; }"

    def __init__(
        self,
        place_of: Callable[[int], tuple[int, int]],
        pages_of: Callable[[int], Sequence[Page]],
    ) -> None:
        super().__init__()
        self._place_of = place_of
        self._pages_of = pages_of
        self._older: list[Turn] = []
        self._newer: list[Turn] = []
        self._is_loading = False
        self._changing = asyncio.Lock()  # a key may act before the last one is done

    async def open(self, turns: Sequence[Turn] | None = None, at: Turn | None = None) -> None:
        """Show turns, or else the same again, from one on or to their end."""
        async with self._changing:
            await self._open(self._turns() if turns is None else turns, at)

    async def _open(self, turns: Sequence[Turn], at: Turn | None = None) -> None:
        ids = [turn.id for turn in turns]
        n = ids.index(at.id) if at and at.id in ids else len(ids)
        end = min(len(ids), n + _N_FIRST - 1)
        start = max(0, end - _N_FIRST)
        with self.app.batch_update():
            await self.remove_children()
            self._older, self._newer = list(turns[:start]), list(turns[end:])
            await self.mount_all(self._view(turn) for turn in turns[start:end])
            self._mark_last()
        self.anchor(at is None)
        if at is None:
            self.call_after_refresh(self._fill)
        else:
            self.call_after_refresh(self._show_part, at, "", 0, 0.0)

    async def add(self, turn: Turn) -> None:
        await self.append(self._view(turn))
        self._mark_last()

    async def append(self, view: Widget) -> None:
        """Show a view at the end, until the transcript is opened again."""
        async with self._changing:
            if self._newer:
                await self._open(self._turns())
            if not (isinstance(view, TurnView) and self.view(view.turn)):
                await self.mount(view)
        self.anchor()

    def views(self) -> list[TurnView]:
        return list(self.query_children(TurnView))

    def view(self, turn: Turn) -> TurnView | None:
        return next((view for view in self.views() if view.turn.id == turn.id), None)

    async def ask(self, call: CallView) -> None:
        def show() -> None:
            if call.is_attached:
                self.scroll_to_widget(call, top=True, animate=False, immediate=True)
                call.begin()

        await self.mount(call)
        self.call_after_refresh(show)

    async def show(self, turn: Turn, words: str = "", n: int = 0, share: float = 0.0) -> None:
        """Scroll to a turn, or to the `n`-th place of words in it, about at a share of its text."""
        views = self.views()
        if views and views[-1].turn.state == "streaming":  # its view must stay
            while self._older and self.view(turn) is None:
                await self._load_older()
        elif self.view(turn) is None:
            await self.open(at=turn)
        self.call_after_refresh(self._show_part, turn, words, n, share)

    async def show_question(self, step: int) -> None:
        """Go to the last question above the first row, or the first one below it."""
        places = [(view.turn, view.virtual_region.y - self.scroll_y) for view in self.views()]
        if step < 0:
            turns = [*self._older, *(turn for turn, y in places if y < 0)][::-1]
        else:
            turns = [*(turn for turn, y in places if y > 0), *self._newer]
        if asked := next((turn for turn in turns if turn.role == "user"), None):
            await self.show(asked)
        elif step > 0:
            await self.show_end(step)

    async def show_end(self, step: int) -> None:
        if step < 0 and (turns := self._turns()):
            await self.show(turns[0])
        elif self._newer:
            await self.open()
        elif step > 0:
            self.anchor()

    def _turns(self) -> list[Turn]:
        return [*self._older, *(view.turn for view in self.views()), *self._newer]

    def _show_part(self, turn: Turn, words: str, n: int, share: float) -> None:
        self.drop_marks()
        if (view := self.view(turn)) is None:
            return
        place = view.virtual_region
        row = place.y + int(place.height * share)
        for answer in view.query(AnswerView):
            if (y := answer.mark(words, n)) is not None:
                row = place.y + answer.virtual_region.y + y
        self.release_anchor()
        above = self.size.height // 3 if words else 0
        self.scroll_to(y=row - above, animate=False, immediate=True)

    def drop_marks(self) -> None:
        for answer in self.query(AnswerView):
            answer.mark("")

    async def grow(self, turns: Sequence[Turn]) -> bool:
        """Show turns as they are now; False if one has changed otherwise than by growing."""
        changed = {turn.id: turn for turn in turns}
        for hidden in (self._older, self._newer):
            hidden[:] = [changed.get(turn.id, turn) for turn in hidden]
        views = [view for view in self.views() if view.turn.id in changed]
        for view in views:
            turn = changed[view.turn.id]
            if not (isinstance(view, AssistantTurnView) and view.can_grow_to(turn)):
                return False
            await view.grow(turn)
        return True

    def show_places(self) -> None:
        for view in self.views():
            view.set_place(self._place_of(view.turn.id))

    def last_answer(self) -> AssistantTurnView | None:
        answers = [view for view in self.views() if isinstance(view, AssistantTurnView)]
        return answers[-1] if answers else None

    def on_resize(self) -> None:
        # NOTE: Textual moves the bar of an anchored widget without painting it again.
        self.call_after_refresh(self.vertical_scrollbar.refresh)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value < 2 and new_value < old_value and self._older and not self._is_loading:
            self._is_loading = True
            self.call_later(self._load_older)
        if new_value > self.max_scroll_y - 2 and self._newer and not self._is_loading:
            self._is_loading = True
            self.call_later(self._load_newer)

    async def _fill(self) -> None:
        if self._older and self.virtual_size.height <= self.size.height:
            await self._load_older()
            self.call_after_refresh(self._fill)

    async def _load_older(self) -> None:
        async with self._changing:
            turns, self._older = self._older[-_N_MORE:], self._older[:-_N_MORE]
            old_height = self.virtual_size.height
            await self.mount_all([self._view(turn) for turn in turns], before=0)

        def keep_place() -> None:
            grown = self.virtual_size.height - old_height
            self.scroll_to(y=self.scroll_y + grown, animate=False, immediate=True)
            self._is_loading = False

        self.call_after_refresh(keep_place)

    async def _load_newer(self) -> None:
        async with self._changing:
            turns, self._newer = self._newer[:_N_MORE], self._newer[_N_MORE:]
            await self.mount_all([self._view(turn) for turn in turns])
        self._mark_last()
        self._is_loading = False

    def _mark_last(self) -> None:
        views = self.views()
        for n, view in enumerate(views, 1):
            if isinstance(view, AssistantTurnView):
                view.set_last(n == len(views) and not self._newer)

    def _view(self, turn: Turn) -> TurnView:
        return view_of(turn, self._place_of(turn.id), self._pages_of(turn.id))
