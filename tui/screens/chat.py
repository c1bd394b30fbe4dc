"""The chat screen: transcript, input, status line, and the answer that streams between them.

What commands do is in `actions`, what is stored in `conversation`.
"""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from gptoss_local.errors import GptOssError
from tui import actions
from tui.answer import Answer
from tui.conversation import Conversation
from tui.history import History, Turn
from tui.running_answer import TICK_S, RunningAnswer
from tui.screens.chats import Place
from tui.server import ChatServer, LoadedModel
from tui.widgets.prompt import CompletionList, Prompt
from tui.widgets.status_line import StatusLine
from tui.widgets.transcript import Transcript
from tui.widgets.turn_view import AssistantTurnView, TurnView

_STATUS_EVERY = 5  # ticks
_ASK_EVERY = 20
_LEAVING_S = 2.0
_HINT = """\
gpt-oss, on this machine. Nothing you type leaves it.

Enter sends, Ctrl-J begins a new line, Esc stops an answer.
/ lists the commands, F2 your chats, F1 all keys."""
_BUSY = "An answer streams. Esc stops it."


class ChatScreen(Screen[None]):
    """One chat at a time."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "command('help')", "Help", id="chat.help"),
        Binding("f2", "command('resume')", "Chats", id="chat.resume"),
        Binding("f3", "command('model')", "Model", id="chat.model"),
        Binding("f4,ctrl+t", "command('effort next')", "Effort", id="chat.effort"),
        Binding("ctrl+o", "reasoning", "Reasoning: folded, tail, full", id="chat.reasoning"),
        Binding("ctrl+n", "command('new')", "New chat", id="chat.new", priority=True),
        Binding("ctrl+r", "command('retry')", "Answer anew", id="chat.retry"),
        Binding("ctrl+g", "command('editor')", "Editor", id="chat.editor"),
        Binding("alt+left", "walk(-1)", "Version before", id="chat.previous", priority=True),
        Binding("alt+right", "walk(1)", "Next version", id="chat.next", priority=True),
        Binding("ctrl+up", "scroll(-1)", "Scroll up", priority=True, id="chat.up"),
        Binding("ctrl+down", "scroll(1)", "Scroll down", priority=True, id="chat.down"),
        Binding("pageup", "scroll(-10)", "Ten rows up", priority=True, id="chat.page_up"),
        Binding("pagedown", "scroll(10)", "Ten rows down", priority=True, id="chat.page_down"),
        Binding("escape", "escape", "Stop; leave", id="chat.stop"),
        Binding("ctrl+c", "interrupt", "Clear, stop, quit", id="chat.interrupt", priority=True),
    ]

    def __init__(self, server: ChatServer, history: History, conversation: Conversation) -> None:
        super().__init__()
        self.server = server
        self.history = history
        self.conversation = conversation
        self.editing: Turn | None = None
        """The message that the next one replaces."""
        self.loaded: LoadedModel | None = None
        self._current: RunningAnswer | None = None
        self._n_ticks = 0
        self._is_leaving = False
        self.transcript = Transcript(conversation.place)
        self.prompt = Prompt(actions.REGISTRY)
        self.completions = CompletionList()
        self.status = StatusLine()

    def compose(self) -> ComposeResult:
        yield Static(_HINT, id="hint", markup=False)
        yield self.transcript
        yield self.completions
        yield self.prompt
        yield self.status

    async def on_mount(self) -> None:
        self.prompt.focus()
        self.set_interval(TICK_S, self._tick)
        await self.show_branch()
        self.model_changed()

    def on_unmount(self) -> None:
        if self._current is not None and self.is_answering:
            self._current.stop()
            self._current.save()

    @property
    def answer(self) -> Answer | None:
        """The one that streams, or the last one since the chat was opened."""
        return self._current.answer if self._current is not None else None

    @property
    def is_answering(self) -> bool:
        return self.answer is not None and self.answer.is_live

    async def open_chat(self, place: Place | None, *, system: str = "") -> None:
        """Open a stored chat, or begin one, with a system message."""
        if place is None:
            self.conversation.new(system)
        else:
            self.conversation.open(place.chat_id, place.turn_id)
        self._current = None
        self.leave_edit()
        await self.show_branch()
        self.model_changed()
        self.prompt.focus()

    async def show_branch(self) -> None:
        """Show the conversation as it is now."""
        self.query_one("#hint").display = not self.conversation.turns
        await self.transcript.open(self.conversation.turns)
        self.show_status()

    def show_status(self) -> None:
        """Bring the status line up to date."""
        chat, n_ctx = self.conversation, self.loaded.n_ctx if self.loaded else None
        self.status.show(chat.model, chat.effort, self.answer, chat.n_context_tokens, n_ctx)

    def show_error(self, error: GptOssError) -> None:
        """What happened and what to do, beside the chat."""
        self.notify(f"{error.message}\n{error.hint}".strip(), severity="error", markup=False)

    def model_changed(self) -> None:
        """Ask the server what it says of the model."""

        async def ask() -> None:
            try:
                self.loaded = await self.server.loaded(self.conversation.model)
            except GptOssError as error:
                self.show_error(error)
            self.show_status()

        self.run_worker(ask(), group="loaded", exclusive=True)

    @on(Prompt.Submitted)
    async def submit(self, event: Prompt.Submitted) -> None:
        """Run a command or send a message."""
        try:
            is_command = actions.REGISTRY.parse(event.text) is not None
        except GptOssError as error:
            self.show_error(error)
            return
        if is_command:
            self.prompt.accepted()
            await self.action_command(event.text.removeprefix("/"))
        elif self.is_answering:
            self.notify(_BUSY, severity="warning")
        else:
            self.prompt.accepted()
            await self.send(event.text)

    async def send(self, text: str) -> None:
        """Ask the model; replaces the message that is being edited."""
        editing = self.editing
        self.leave_edit()
        turn = self.conversation.ask(text, instead_of=editing)
        if editing is None:
            await self.transcript.add(turn)
        await self.begin(self.conversation.begin_answer(), is_new=editing is None)

    async def begin(self, turn: Turn, *, is_new: bool) -> None:
        """Stream into a turn: a new one at the end, or one of a branch that is to be shown."""
        self.query_one("#hint").display = False
        if is_new:
            view = await self.transcript.add(turn)
        else:
            await self.show_branch()
            view = self.transcript.views()[-1]
        assert isinstance(view, AssistantTurnView)
        running = self._current = RunningAnswer(self.conversation, turn, view)
        running.start(
            self.server,
            on_first=lambda: self.call_later(running.paint),
            on_end=lambda: self.call_later(self._finish, running),
        )
        self.show_status()

    def stop(self) -> None:
        """Stop the answer; what there is of it stays."""
        if self._current is not None and self.is_answering:
            self._current.stop()

    async def _finish(self, running: RunningAnswer) -> None:
        running.save()
        await running.paint()
        asked = self.conversation.last("user")
        if running.was_too_long and asked is not None and not self.prompt.text:
            self.edit(asked)  # the message is in the input again, to be made shorter
        self.model_changed()

    async def _tick(self) -> None:
        if self._current is None or not self.is_answering:
            return
        await self._current.tick()
        self._n_ticks += 1
        if self._n_ticks % _STATUS_EVERY == 0:
            self.show_status()
        if self.loaded is None and self._n_ticks % _ASK_EVERY == 0:
            self.model_changed()

    def edit(self, turn: Turn) -> None:
        """Put a message into the input; what is sent becomes another version of it."""
        self.editing = turn
        self.prompt.set_editing(True)
        self.prompt.fill(turn.content)

    def leave_edit(self) -> None:
        """The message that was edited stays as it is."""
        self.editing = None
        self.prompt.set_editing(False)

    async def walk(self, turn: Turn, step: int) -> None:
        """Show another version of a turn, with what follows it."""
        if self.is_answering:
            self.notify(_BUSY, severity="warning")
        elif (other := self.conversation.walk(turn, step)) is not None:
            self._current = None
            await self.show_branch()
            self.transcript.show_turn(other)

    @on(Prompt.Completions)
    def show_completions(self, event: Prompt.Completions) -> None:
        self.completions.show(event.lines)

    @on(TurnView.Wanted)
    async def fulfil(self, event: TurnView.Wanted) -> None:
        """What a key on a turn asks for."""
        if event.wish == "copy":
            actions.copy_text(self, event.turn.content)
        elif event.wish in ("previous", "next"):
            await self.walk(event.turn, -1 if event.wish == "previous" else 1)
        elif self.is_answering:
            self.notify(_BUSY, severity="warning")
        else:
            await actions.edit_turn(self, event.turn)

    async def action_command(self, text: str) -> None:
        """Run a command, given as behind its slash."""
        parsed = actions.REGISTRY.parse(f"/{text}")
        assert parsed is not None
        command, argument = parsed
        if self.is_answering and not command.available_during_turn:
            self.notify(_BUSY, severity="warning")
            return
        try:
            await command.action(self, argument)
        except GptOssError as error:
            self.show_error(error)
        self.show_status()

    async def action_walk(self, step: int) -> None:
        """Walk the versions of the last turn that has several."""
        if turn := self.conversation.last_with_siblings():
            await self.walk(turn, step)

    def action_scroll(self, n_rows: int) -> None:
        self.transcript.scroll_relative(y=n_rows, animate=False)

    def action_reasoning(self) -> None:
        """Cycle how the reasoning of the focused or the last answer is shown."""
        focused = self.focused
        view = focused if isinstance(focused, AssistantTurnView) else self.transcript.last_answer()
        if view is not None:
            view.action_reasoning()

    def action_escape(self) -> None:
        """Stop the answer; else leave what is being edited. Then the input has the focus."""
        if self.is_answering:
            self.stop()
        elif self.editing is not None:
            self.leave_edit()
            self.prompt.text = ""
        self.prompt.focus()

    def action_interrupt(self) -> None:
        """Copy what is selected; else clear the input; else stop; else quit when pressed twice."""
        if selected := self.prompt.selected_text or self.get_selected_text():
            self.app.copy_to_clipboard(selected)
        elif self.prompt.text:
            self.leave_edit()
            self.prompt.text = ""
        elif self.is_answering:
            self.stop()
        elif self._is_leaving:
            self.app.exit()
        else:
            self._is_leaving = True
            self.notify("Ctrl-C again quits.", timeout=_LEAVING_S)
            self.set_timer(_LEAVING_S, self._stay)

    def _stay(self) -> None:
        self._is_leaving = False
