"""The chat screen: transcript, input, status line, and the answer that streams between them."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Key, Paste
from textual.widgets import Input, Static
from textual.worker import Worker

from gptoss_local.api.gptoss import ServerStatus
from gptoss_local.api.models import RunningModel
from gptoss_local.base.errors import GptOssError, HistoryError
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.conversation import ToolChoice
from gptoss_local.talk.history import ChatSummary, History, Turn, Watch
from gptoss_local.talk.tools import Toolbox
from tui.actions import REGISTRY, values_of
from tui.actions.answers import continue_turn, edit_turn
from tui.actions.chats import open_chat
from tui.chat_parts import ChatParts, Rooms
from tui.chat_view import ChatView, Talk
from tui.commands import shell_command
from tui.conversation import Conversation, composed_of
from tui.dialogue import Dialogue
from tui.downloads import Download, Downloads
from tui.drafts import Drafts
from tui.exchange import TICK_S
from tui.paste import Composed
from tui.screens.chats import Place
from tui.screens.dialog import copy_selection
from tui.screens.errors import READ_S, errors_shown, show_error
from tui.server import ChatServer
from tui.widgets.chat_list import ChatList, hint_text
from tui.widgets.message_queue import MessageQueue
from tui.widgets.prompt import Prompt
from tui.widgets.question import Question
from tui.widgets.shell_view import ShellTray, ShellView
from tui.widgets.status_line import Status, StatusLine
from tui.widgets.turn_view import TurnView

_STATUS_EVERY, _ASK_EVERY = 5, 20  # ticks
_LOOK_S, _KEEP_S, _CATCH_UP_S, _LEAVING_S = 5.0, 1.0, 0.25, 2.0
_N_LISTED, _N_RECENT = 50, 5
_WIDE = 120  # columns; from there on the chats are listed next to the open one


class ChatScreen(ChatView):
    first_message = ""  # is sent at the start
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(keys, action, text, id=f"chat.{name}", priority=is_first)
        for keys, action, text, name, is_first in (
            ("f1,alt+h", "command('help')", "Help", "help", True),
            ("f2", "command('resume')", "Chats", "resume", False),
            ("f3", "command('model')", "Model", "model", False),
            ("f4,ctrl+t", "command('effort next')", "Effort", "effort", False),
            ("ctrl+o", "reasoning", "Reasoning: folded, tail, full", "reasoning", False),
            ("ctrl+n", "command('new')", "New chat", "new", True),
            ("alt+r", "command('retry')", "Answer again", "retry", True),
            ("ctrl+r", "command('recall')", "Search your messages", "recall", False),
            ("ctrl+f", "command('find')", "Find in this chat", "find", True),
            ("ctrl+z", "app.suspend_process", "Suspend", "suspend", True),
            ("ctrl+b,f7", "list", "List of chats: show or hide", "list", False),
            ("f5,alt+e", "command('again')", "The same prompt, other effort", "again", True),
            ("f6", "command('now')", "Answer now", "now", True),
            ("f8", "command('stats')", "Speed of the answers", "stats", False),
            ("f9", "command('inspect')", "What the model saw", "inspect", False),
            ("f12,alt+p", "command('preset')", "Presets", "preset", True),
            ("ctrl+s,ctrl+enter", "steer", "Stop and send", "steer", True),
            ("alt+c", "command('copy block')", "Copy a code block", "copy", True),
            ("alt+o", "command('open')", "Open a link", "open", True),
            ("ctrl+g", "command('editor')", "Editor", "editor", False),
            ("alt+left", "walk(-1)", "Version before", "previous", True),
            ("alt+right", "walk(1)", "Next version", "next", True),
            ("ctrl+up", "scroll(-1)", "Scroll up", "up", True),
            ("ctrl+down", "scroll(1)", "Scroll down", "down", True),
            ("pageup", "page(-1)", "A page up", "page_up", True),
            ("pagedown", "page(1)", "A page down", "page_down", True),
            ("alt+up", "question(-1)", "Question before", "question_up", True),
            ("alt+down", "question(1)", "Next one", "question_down", True),
            ("alt+home", "end(-1)", "To the first message", "first", True),
            ("alt+end", "end(1)", "To the last message", "last", True),
            ("escape", "escape", "Stop; leave", "stop", False),
            ("ctrl+c,ctrl+q", "interrupt", "Clear, stop, quit", "interrupt", True),
        )
    ]

    def __init__(
        self,
        server: ChatServer,
        history: History,
        conversation: Conversation,
        make_toolbox: Callable[[], Toolbox],
        keys: Mapping[str, str],
    ) -> None:
        super().__init__()
        self._server, self._history, self._keys = server, history, keys
        self._make_toolbox = make_toolbox
        self.loaded: RunningModel | None = None
        self._machine: ServerStatus | None = None
        self._n_ticks, self._leaves_until_s = 0, 0.0
        self._doing: Worker[None] | None = None  # what the last key began
        self._hint = Static(id="hint", markup=False)
        self._sidebar, self._recent = ChatList("sidebar"), ChatList("recent")
        self._has_sidebar, self._watch = True, Watch(_N_LISTED)
        self._chats: list[ChatSummary] = []
        self._listed: object = None
        self.prompt = Prompt(
            REGISTRY, self.submit, lambda *typed: values_of(self.parts, *typed), server.n_tokens
        )
        self.question = Question(self.prompt)
        self._tray, self._status = ShellTray(self.prompt.folded), StatusLine()
        self._downloads = Downloads(server, self._downloaded)
        self._drafts = Drafts(history.path.with_name("drafts.json"), lambda: history.lock.is_set)
        self.rooms = Rooms(conversation, self._room)

    def _room(self, rooms: Rooms, conversation: Conversation) -> ChatParts:
        server, toolbox = self._server, self._make_toolbox()
        dialogue = Dialogue(Talk(self, conversation, server, toolbox), self.prompt.folded)
        return ChatParts(self, server, self._history, conversation, toolbox, ToolChoice(toolbox),
                         dialogue, self._downloads, self._keys, rooms)  # fmt: skip

    @property
    def parts(self) -> ChatParts:
        return self.rooms.shown

    @property
    def conversation(self) -> Conversation:
        return self.parts.conversation

    @property
    def dialogue(self) -> Dialogue:
        return self.parts.dialogue

    @property
    def queue(self) -> MessageQueue:
        return self.dialogue.queue

    def compose(self) -> ComposeResult:
        yield self._sidebar
        yield VerticalScroll(self._hint, self._recent, id="start", can_focus=False)
        yield self.transcript
        yield self._speed
        yield self.queue
        yield self.question
        yield self._tray
        yield self.prompt.menu
        yield self.prompt
        yield self._status

    async def on_mount(self) -> None:
        for rack in self.query("#textual-toastrack"):  # not there where notices are off
            self.move_child(rack, before=self.prompt.menu)
        self.set_focus(self.prompt)
        self.set_interval(TICK_S, self._tick)
        self.set_interval(_KEEP_S, self._keep_draft)
        self.prompt.remember(self._drafts.read())
        self.set_interval(_LOOK_S, self._look)
        self.set_interval(_CATCH_UP_S, self._catch_up)
        await self.parts.open_tools()
        await self.show_branch()
        self.call_after_refresh(self.model_changed)  # PERF: the prompt is there before
        self.call_after_refresh(import_module, "tui.markdown_rows")
        if (work := self.parts.toolbox.work) and self.conversation.turns:  # else the start page
            self.notify(work.line, timeout=READ_S, markup=False)
        if self.first_message:
            self.fill(self.prompt.folded.refold(Composed(self.first_message)))
            self.call_after_refresh(self.prompt.submit)

    @property
    def answer(self) -> Answer | None:
        return self.dialogue.answer

    @property
    def is_settling(self) -> bool:
        """Return whether something that a key began is not done."""
        return bool(self._doing and not self._doing.is_finished) or self.question.is_settling

    @property
    def is_answering(self) -> bool:
        return self.dialogue.is_busy

    def fill(self, text: str) -> None:
        self.prompt.set_editing(self.dialogue.editing is not None)
        self.prompt.fill(text)

    def take_key(self, event: Key | Paste) -> None:
        """Give the input every paste, and each character that no mode or question wants."""
        pause_s, focused = self.typing.note(), self.focused
        if isinstance(event, Paste) or event.is_printable:
            self._leaves_until_s = 0.0  # who types on does not leave
        if self.app.screen is not self or isinstance(focused, Input):
            return
        key = event if isinstance(event, Key) else None
        if focused is self.prompt:
            if key and not self.prompt.text and self.question.wants(key.key, pause_s):
                self.set_focus(self.question.answers)
        elif key is None or (key.is_printable and key.key not in self.active_bindings):
            self.set_focus(self.prompt)

    async def show_branch(self, at: Turn | None = None) -> None:
        for room in self.rooms:
            queue = room.dialogue.queue
            queue.set_class(room is not self.parts, "-away")
            if not queue.is_attached:
                await self.mount(queue, before=self.prompt.menu)
        turns = self.conversation.turns
        self.set_class(not turns, "-empty")
        self._list_chats()
        self.set_focus(self.prompt)  # else Textual focuses a neighbour of a removed message
        await self.transcript.open(turns, at)
        self.prompt.remember(composed_of(turn) for turn in turns if turn.role == "user")
        self._show_speed()
        self.show_status()

    def answer_ended(self) -> None:
        self.app.bell()
        self._show_speed()
        self.model_changed()

    def show_status(self) -> None:
        chat, loaded = self.conversation, self.loaded
        n_ctx, share = (loaded.context_length, loaded.vram_share) if loaded else (None, 0.0)
        what = (chat.model, chat.effort, self.answer, self.dialogue.note, chat.n_context_tokens)
        machine = self._machine
        gpus, loads = (machine.gpus, machine.loading) if machine else ([], [])
        load = next((load for load in loads if load.model == chat.model), None)
        work, on = self.parts.toolbox.work, self.parts.toolbox.on
        works = work is not None and work.name in on
        status = Status(*what, n_ctx, gpus, load, share, chat.preset, chat.is_temporary, works)
        self._status.show(status)
        if self.has_class("-empty"):
            line = work.line if work is not None and works else ""
            self._hint.update(hint_text(chat, loaded, machine, line))

    def _keep_draft(self) -> None:
        """Store all unsent text, so that a crash loses a second at most."""
        is_kept = not (self.dialogue.editing or self.conversation.is_temporary)
        edited = self.typed if is_kept and not shell_command(self.typed) else ""
        kept = [room.dialogue for room in self.rooms if not room.conversation.is_temporary]
        held = [text for each in kept for text in (*each.queue.texts, each.draft)]
        typed = "\n\n".join(filter(None, (*held, edited)))
        with errors_shown(self.app):
            self._drafts.keep(self.prompt.folded.unfold(typed))

    def on_unmount(self) -> None:
        self._keep_draft()
        self._downloads.close()

    def _downloaded(self, download: Download) -> None:
        if download.error is not None:
            show_error(self, download.error)
        elif download.is_here:
            self.notify(f"{download.name} is here: /model {download.name} takes it", markup=False)

    @work(group="loaded", exclusive=True)
    async def model_changed(self) -> None:
        try:
            self.loaded = await self.parts.server.loaded(self.conversation.model)
            self._machine = await self.parts.server.status()
            self.model_names = [tag.name for tag in await self.parts.server.installed_models()]
        except GptOssError as error:
            self._machine = None
            show_error(self, error)
        self.show_status()

    def submit(self, typed: str, is_command: bool) -> None:
        self._doing = self.run_worker(self._submit(typed, is_command=is_command), group="keys")

    async def _submit(self, typed: str, *, is_command: bool) -> None:
        message = self.prompt.folded.unfold(typed)
        with errors_shown(self):
            if is_command:
                self._drafts.forget(message)
                await self._command(message.text.removeprefix("/"))
            elif command := shell_command(typed):
                view = ShellView(command)
                self.set_class(False, "-empty")
                await self.transcript.append(view)
                self.run_worker(self._tray.run(view), group="shell")
            else:
                await self.dialogue.say(self._tray.take(typed))  # stored before the draft goes
                self._drafts.forget(message)

    async def _tick(self) -> None:
        for room in self.rooms:
            await room.dialogue.tick()
        if not self.is_answering:
            return
        self._n_ticks += 1
        if self._n_ticks % _STATUS_EVERY == 0:
            self.show_status()
            if self.answer is not None and self.answer.is_live:
                self._speed.show_live(self.answer)
        n_ctx = self.answer.growth.n_ctx if self.answer and self.answer.growth else 0
        if self._n_ticks % _ASK_EVERY == 0 and (
            self.loaded is None or self.loaded.context_length < n_ctx
        ):
            self.model_changed()

    def _look(self) -> None:
        """Read the GPU's memory, which other programs change at any time."""
        if self._machine and self._machine.gpus:
            self.model_changed()

    async def _catch_up(self) -> None:
        with errors_shown(self):
            await self.rooms.end_idle()
        self._list_chats()
        if self.is_answering:
            return
        try:
            news = self.conversation.catch_up()
        except HistoryError:  # the next message will say it
            return
        if news is None:
            return
        if news.is_deleted:
            notice = "This chat was deleted elsewhere; Ctrl-N begins a new one."
            self.notify(notice, severity="warning")
            return
        with errors_shown(self):
            if await self.transcript.grow(news.changed):
                for turn in news.added:
                    await self.add_turn(turn)
                self.transcript.show_places()
            else:
                await self.show_branch()
        self._show_speed()
        self.show_status()

    def _list_chats(self) -> None:
        with suppress(HistoryError):  # the next message will say it
            if news := self._watch.look(self._history, None):
                self._chats = news.chats
        chats, chat_id = self._chats, self.conversation.chat_id
        busy = [room.conversation.chat_id or 0 for room in self.rooms if room.dialogue.is_busy]
        if self._listed != (chats, chat_id, busy):
            self._listed = chats, chat_id, busy
            self._sidebar.show(chats, chat_id, busy)
            self._recent.show(chats[:_N_RECENT], chat_id, busy)
            self.set_class(self._has_sidebar and len(chats) > 1, "-listed")

    def action_list(self) -> None:
        self._has_sidebar, self._listed = not self._has_sidebar, None
        self._list_chats()

    @on(ChatList.OptionSelected, "ChatList")
    async def open_listed(self, event: ChatList.OptionSelected) -> None:
        with errors_shown(self):
            await open_chat(self.parts, Place(int(event.option.id or 0), None))

    async def walk(self, turn: Turn, step: int) -> None:
        if self.is_answering:
            self.dialogue.refuse()
            return
        with errors_shown(self):
            is_focused = isinstance(self.focused, TurnView)
            if (other := self.conversation.walk(turn, step)) is not None:
                self.dialogue.reset()
                await self.show_branch(other)
                if is_focused and (view := self.transcript.view(other)) is not None:
                    view.focus()

    @on(TurnView.Wanted)
    async def fulfil(self, event: TurnView.Wanted) -> None:
        if event.wish == "copy":
            self.app.copy_to_clipboard(event.turn.content)
        elif event.wish in ("previous", "next"):
            await self.walk(event.turn, -1 if event.wish == "previous" else 1)
        elif self.is_answering:
            self.dialogue.refuse()
        else:
            act = continue_turn if event.wish == "continue" else edit_turn
            with errors_shown(self):
                await act(self.parts, event.turn)

    def action_command(self, text: str) -> None:
        self._doing = self.run_worker(self._command(text), group="keys")

    async def _command(self, text: str) -> None:
        parsed = REGISTRY.parse(f"/{text}")
        assert parsed is not None
        command, argument = parsed
        if self.is_answering and not command.available_during_turn:
            self.dialogue.refuse()
            return
        with errors_shown(self):
            await REGISTRY.actions[command.name](self.parts, argument)
        self.show_status()

    async def action_walk(self, step: int) -> None:
        with errors_shown(self):
            chat = self.conversation
            several = (turn for turn in reversed(chat.turns) if chat.place(turn.id)[1] > 1)
            if turn := next(several, None):
                await self.walk(turn, step)

    def action_escape(self) -> None:
        """Take back the last waiting message; else stop the answer; else leave the edit."""
        self.transcript.drop_marks()
        if self._tray.end_last():
            pass
        elif not self.queue.is_empty:
            self.dialogue.take_back_queue(is_last=True)
        elif self.is_answering:
            self.dialogue.stop()
        elif self.dialogue.editing is not None:
            self.prompt.take()
            self.dialogue.leave_edit()
        else:
            self._tray.drop_last()
        self.set_focus(self.prompt)

    async def action_steer(self) -> None:
        if self.prompt.text.startswith("/") or shell_command(self.prompt.text):
            self.prompt.submit()
        else:
            with errors_shown(self):
                typed = self.prompt.take()
                await self.dialogue.steer(self._tray.take(typed) if typed else "")

    def action_interrupt(self) -> None:
        """Copy the selection; else put the draft aside; else stop; else quit when pressed twice."""
        if copy_selection(self, self.prompt):
            pass
        elif self.dialogue.editing is not None:
            self.prompt.take()
            self.dialogue.leave_edit()
        elif self.prompt.text:
            self._keep_draft()
            self._drafts.put_aside()
            self.prompt.take()
            self.notify("Up brings it back.", timeout=_LEAVING_S)
        elif self._tray.end_last():
            pass
        elif self.is_answering:
            self.dialogue.stop()
        elif time.monotonic() < self._leaves_until_s:
            self.app.exit()
        else:
            self._leaves_until_s = time.monotonic() + _LEAVING_S
            self.notify("Ctrl-C again quits.", timeout=_LEAVING_S)
