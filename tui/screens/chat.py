"""The chat screen: transcript, input, status line, and the answer that streams between them.

What commands do is in `actions`, what is stored in `conversation`.
"""

from importlib import import_module
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from gptoss_local.errors import GptOssError
from tui import actions
from tui.answer import Answer
from tui.conversation import Conversation
from tui.dialogue import Dialogue
from tui.history import History, Turn
from tui.running_answer import TICK_S
from tui.screens.chats import Place
from tui.screens.errors import show_error, telling
from tui.server import ChatServer, LoadedModel, Look
from tui.tools import Toolbox
from tui.widgets.prompt import CompletionList, Prompt
from tui.widgets.queue_view import QueueView
from tui.widgets.speed_panel import SpeedPanel
from tui.widgets.status_line import Status, StatusLine
from tui.widgets.transcript import Transcript
from tui.widgets.turn_view import AssistantTurnView, TurnView

_STATUS_EVERY = 5  # ticks
_ASK_EVERY = 20
_LOOK_S = 5.0
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
        Binding("f5", "command('again')", "The same prompt, other effort", id="chat.again"),
        Binding("f8", "command('stats')", "Speed of the answers", id="chat.stats"),
        Binding("f9", "command('inspect')", "What the model saw", id="chat.inspect"),
        Binding("ctrl+s,ctrl+enter", "steer", "Stop and send", id="chat.steer", priority=True),
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

    def __init__(
        self, server: ChatServer, history: History, conversation: Conversation, toolbox: Toolbox
    ) -> None:
        super().__init__()
        self.server = server
        self.history = history
        self.conversation = conversation
        self.toolbox = toolbox
        self.loaded: LoadedModel | None = None
        self._machine = Look([], {})
        self.dialogue = Dialogue(self)
        self._n_ticks = 0
        self._is_leaving = False
        self.transcript = Transcript(conversation.place)
        self.prompt = Prompt(actions.REGISTRY)
        self.completions = CompletionList()
        self.queue = QueueView()
        self.speed = SpeedPanel()
        self.status = StatusLine()

    def compose(self) -> ComposeResult:
        yield Static(_HINT, id="hint", markup=False)
        yield self.transcript
        yield self.speed
        yield self.queue
        yield self.completions
        yield self.prompt
        yield self.status

    async def on_mount(self) -> None:
        self.prompt.focus()
        self.set_interval(TICK_S, self._tick)
        self.set_interval(_LOOK_S, self._look)
        await self.show_branch()
        self.call_after_refresh(self.model_changed)  # PERF: the prompt is there before
        self.call_after_refresh(import_module, "tui.widgets.answer_markdown")

    @property
    def answer(self) -> Answer | None:
        """The one that streams, or the last one since the chat was opened."""
        return self.dialogue.answer

    @property
    def is_answering(self) -> bool:
        """An answer streams, or a tool runs or waits for a word of the user."""
        return self.dialogue.is_busy

    async def open_chat(self, place: Place | None, *, system: str = "") -> None:
        """Open a stored chat, or begin one, with a system message."""
        if place is None:
            self.conversation.new(system)
        else:
            self.conversation.open(place.chat_id, place.turn_id)
        self.dialogue.reset()
        self.dialogue.leave_edit()
        self.toolbox.trusted.clear()
        found = [turn for turn in self.conversation.turns if place and turn.id == place.turn_id]
        await self.show_branch(found[0] if found else None)
        self.model_changed()
        self.prompt.focus()

    async def show_branch(self, at: Turn | None = None) -> None:
        """Show the conversation as it is now, at its end or at a turn."""
        turns = self.conversation.turns
        self.query_one("#hint").display = not turns
        await self.transcript.open(turns, at)
        self.prompt.remember([turn.content for turn in turns if turn.role == "user"])
        self.show_speed()
        self.show_status()

    def show_speed(self) -> None:
        """Bring the speed panel up to date: of the last answer that was finished."""
        turn = self.conversation.last("assistant")
        self.speed.show(turn.stats if turn is not None else {})

    def show_status(self) -> None:
        """Bring the status line up to date."""
        chat, loaded = self.conversation, self.loaded
        n_ctx, share = (loaded.n_ctx, loaded.gpu_share) if loaded else (None, 0.0)
        what = (chat.model, chat.effort, self.answer, self.dialogue.note, chat.n_context_tokens)
        load = self._machine.loading.get(chat.model)
        self.status.show(Status(*what, n_ctx, self._machine.gpus, load, share))

    def show_error(self, error: GptOssError) -> None:
        """What happened and what to do, beside the chat."""
        show_error(self, error)

    @work(group="loaded", exclusive=True)
    async def model_changed(self) -> None:
        """Ask the server what it says of the model."""
        try:
            self.loaded = await self.server.loaded(self.conversation.model)
            self._machine = await self.server.look()
        except GptOssError as error:
            self._machine = Look([], {})
            self.show_error(error)
        self.show_status()

    @on(Prompt.Submitted)
    async def submit(self, event: Prompt.Submitted) -> None:
        """Run a command or send a message."""
        try:
            is_command = actions.REGISTRY.parse(event.text) is not None
        except GptOssError as error:
            self.show_error(error)
            return
        self.prompt.accepted()
        if is_command:
            await self.action_command(event.text.removeprefix("/"))
            return
        with telling(self):
            await self.dialogue.say(event.text)

    def refuse(self) -> None:
        """Say that this has to wait for the answer."""
        self.notify(_BUSY, severity="warning")

    async def _tick(self) -> None:
        if not self.is_answering:
            return
        await self.dialogue.tick()
        self._n_ticks += 1
        if self._n_ticks % _STATUS_EVERY == 0:
            self.show_status()
            if self.answer is not None and self.answer.is_live:
                self.speed.show_live(self.answer)
        if self.loaded is None and self._n_ticks % _ASK_EVERY == 0:
            self.model_changed()

    def _look(self) -> None:
        """What other programs take of the GPU changes at any time."""
        if self._machine.gpus:
            self.model_changed()

    async def walk(self, turn: Turn, step: int) -> None:
        """Show another version of a turn, with what follows it."""
        if self.is_answering:
            self.refuse()
            return
        with telling(self):
            if (other := self.conversation.walk(turn, step)) is not None:
                self.dialogue.reset()
                await self.show_branch(other)
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
            self.refuse()
        else:
            with telling(self):
                await actions.edit_turn(self, event.turn)

    async def action_command(self, text: str) -> None:
        """Run a command, given as behind its slash."""
        parsed = actions.REGISTRY.parse(f"/{text}")
        assert parsed is not None
        command, argument = parsed
        if self.is_answering and not command.available_during_turn:
            self.refuse()
            return
        with telling(self):
            await command.action(self, argument)
        self.show_status()

    async def action_walk(self, step: int) -> None:
        """Walk the versions of the last turn that has several."""
        with telling(self):
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
        """Take back what waits; else stop the answer; else leave what is being edited."""
        if not self.queue.is_empty:
            self.dialogue.take_back_queue(is_last=True)
        elif self.is_answering:
            self.dialogue.stop()
        elif self.dialogue.editing is not None:
            self.dialogue.leave_edit()
        self.prompt.focus()

    async def action_steer(self) -> None:
        """Send what is typed, or else what waits, without waiting for the answer to end."""
        if self.prompt.text.startswith("/"):
            self.prompt.submit()
        else:
            with telling(self):
                await self.dialogue.steer(self.prompt.take())

    def action_interrupt(self) -> None:
        """Copy what is selected; else clear the input; else stop; else quit when pressed twice."""
        if selected := self.prompt.selected_text or self.get_selected_text():
            self.app.copy_to_clipboard(selected)
        elif self.dialogue.editing is not None:
            self.dialogue.leave_edit()
        elif self.prompt.text:
            self.prompt.text = ""
        elif self.is_answering:
            self.dialogue.stop()
        elif self._is_leaving:
            self.app.exit()
        else:
            self._is_leaving = True
            self.notify("Ctrl-C again quits.", timeout=_LEAVING_S)
            self.set_timer(_LEAVING_S, self._stay)

    def _stay(self) -> None:
        self._is_leaving = False
