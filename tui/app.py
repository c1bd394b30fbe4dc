"""`gptoss chat`: the Textual application, a client of the server like any other."""

import asyncio
import codecs
import gc
import importlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._callback import invoke
from textual._compositor import CompositorUpdate
from textual.app import App
from textual.binding import Binding
from textual.color import BLACK, WHITE, Color
from textual.drivers._writer_thread import WriterThread
from textual.events import Event, Key, Paste
from textual.filter import LineFilter
from textual.geometry import Region, Size
from textual.keys import _character_to_key
from textual.screen import Screen

from gptoss_local.base.errors import UsageError
from gptoss_local.base.printable import printable
from gptoss_local.base.quantities import counted
from gptoss_local.talk.history import History
from gptoss_local.talk.history.plain import plain_text
from gptoss_local.talk.tools import Toolbox
from tui.actions import REGISTRY
from tui.actions.choices import use_theme
from tui.actions.help import MODES, bindings_of
from tui.conversation import Conversation
from tui.screens.chat import ChatScreen
from tui.screens.dialog import Dialog, PickDialog
from tui.server import ChatServer

_START, _END = "\x1b[200~", "\x1b[201~"  # of a bracketed paste


class InputDecoder(codecs.IncrementalDecoder):
    """Decodes bytes in pieces of any size; pastes keep no controls but tab and newline."""

    def __init__(self, errors: str = "replace") -> None:
        super().__init__(errors)
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors)
        self._is_paste = False
        self._held = ""  # of a paste: perhaps the beginning of its end
        self._last = ""  # outside of one: perhaps the beginning of its start
        self._is_lost = False

    def decode(self, data: Any, final: bool = False) -> str:
        if not (data or final or self._is_lost):  # the terminal is gone, and all reads are empty
            self._is_lost = True
            os.kill(os.getpid(), signal.SIGTERM)  # the app ends as at that
        text, decoded = self._utf8.decode(data, final), ""
        while text:
            piece, text = self._of_paste(text) if self._is_paste else self._of_keys(text)
            decoded += piece
        return decoded

    def _of_keys(self, text: str) -> tuple[str, str]:
        seen = self._last + text
        start = seen.find(_START)
        if start < 0:
            self._last = seen[1 - len(_START) :]
            return text, ""
        end = start + len(_START) - len(self._last)
        self._is_paste, self._last = True, ""
        return text[:end], text[end:]

    def _of_paste(self, text: str) -> tuple[str, str]:
        pasted, end, rest = (self._held + text).partition(_END)
        self._is_paste, self._held = not end, ""
        if not end:
            self._held = _held_of(pasted)
            pasted = pasted.removesuffix(self._held)
        lines = pasted.replace("\r\n", "\n").replace("\r", "\n")
        return plain_text(lines) + end, rest


def _held_of(pasted: str) -> str:
    """Return the longest end of a text that may be cut in a line end or in `_END`."""
    beginnings = [_END[:n] for n in range(len(_END) - 1, 0, -1)]
    return next((held for held in (*beginnings, "\r") if pasted.endswith(held)), "")


class Writer(WriterThread):
    """Drops output for a terminal that is gone; else its queue fills, and the chat waits."""

    def run(self) -> None:
        try:
            super().run()
        except OSError:
            while self._queue.get() is not None:
                pass


_NOT_ALT = "[O]PNX^_\\fb"  # sequences begin so, or Textual knows another key


def guard_driver() -> None:
    """Make Textual's driver use both, without a setting for it; on Windows it reads no bytes.

    It takes Esc and Enter for Enter, and types the sign of Alt-5 and Alt-full-stop.
    """
    known: Any = ANSI_SEQUENCES_KEYS
    for sign in map(chr, (0x0D, *range(0x20, 0x7F))):
        if sign not in _NOT_ALT:
            plain = f"shift+{sign.lower()}" if sign.isupper() else _character_to_key(sign)
            name = "enter" if sign == "\r" else plain
            known[f"\x1b{sign}"] = (SimpleNamespace(value=f"alt+{name}"),)
    if sys.platform != "win32":
        driver: Any = importlib.import_module("textual.drivers.linux_driver")
        driver.getincrementaldecoder = lambda _encoding: InputDecoder
        driver.WriterThread = Writer


_TIMEOUT_S = 2.0


def copy_natively(text: str) -> bool:
    """Hand a text to the desktop's clipboard program; return whether it took the text.

    Never over SSH, where it would fill the clipboard of the other machine.
    """
    command = native_command(os.environ, sys.platform)
    if not command:
        return False
    encoding = "utf-16-le" if command[0].startswith("clip") else "utf-8"
    try:
        subprocess.run(
            command,
            input=text.encode(encoding, "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return True


_COPIERS = {  # by the variable that says that one works
    ("wl-copy",): "WAYLAND_DISPLAY",
    ("xclip", "-selection", "clipboard"): "DISPLAY",
    ("xsel", "-ib"): "DISPLAY",
    ("clip.exe",): "WSL_DISTRO_NAME",
}


def native_command(environment: Mapping[str, str], platform: str) -> list[str]:
    if environment.get("SSH_CONNECTION"):
        return []
    known = [list(command) for command, name in _COPIERS.items() if environment.get(name)]
    candidates = {"win32": [["clip"]], "darwin": [["pbcopy"]]}.get(platform, known)
    return next((command for command in candidates if shutil.which(command[0])), [])


_MOVE = re.compile(r"\x1b\[(\d+);(\d+)H")
_NO_TEXT = re.compile(r"\x1b\[[\d;]*m|\x1b\]8;[^\x1b]*\x1b\\")
_SHOWN_S = 5.0  # then another program may have written over it
_MOST_ROWS, _LEAST_GAIN = 9, 4  # of a scroll; rows that it must save


class Painter:
    """Knows what the terminal shows: sends what is new, and has it move the rows that scrolled."""

    def __init__(self) -> None:
        self._rows: dict[int, dict[int, tuple[int, str]]] = {}  # pieces by column, with their ends
        self._made_for, self._since_s = (Size(), object()), 0.0

    def paint(self, frame: str, size: Size, scrolls: Region, opened: object = None) -> str:
        if (size, opened) != self._made_for or time.monotonic() - self._since_s > _SHOWN_S:
            self._rows, self._made_for, self._since_s = {}, (size, opened), time.monotonic()
        shown, rows = self._rows, dict(self._rows)
        parts = _MOVE.split(frame)
        for row, column, part in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            y, x, text = int(row) - 1, int(column) - 1, part.rstrip("\n")
            end = x + cell_len(_NO_TEXT.sub("", text))
            beside = {a: (b, t) for a, (b, t) in rows.get(y, {}).items() if b <= x or end <= a}
            rows[y] = beside | ({x: (end, text)} if text else {})
        self._rows = rows if len(rows) <= size.height else {}  # a frame of before the window shrank
        span = range(scrolls.y, scrolls.bottom)
        gains = [sum(rows.get(y) == shown.get(y + n) != shown.get(y) for y in span[:-n])
                 for n in range(1, _MOST_ROWS)]  # fmt: skip
        n = 1 + gains.index(max(gains))
        n_known = sum(end - x for y in span for x, (end, _) in rows.get(y, {}).items())
        sent = []
        if max(gains) >= _LEAST_GAIN and n_known == size.width * len(span):
            top, bottom, lines = scrolls.y + 1, scrolls.bottom, "\n" * n
            sent.append(f"\x1b[{top};{bottom}r\x1b[{bottom};1H{lines}\x1b[r")
            shown = shown | {y: shown[y + n] if y in span[:-n] else {} for y in span}
        sent += [f"\x1b[{y + 1};{x + 1}H{piece[1]}" for y, row in rows.items()
                 for x, piece in row.items() if shown.get(y, {}).get(x) != piece]  # fmt: skip
        return "".join(sent)


class Printable(LineFilter):
    """Drops characters that a terminal would obey from every row of every widget."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            s if s.control or (clean := printable(s.text)) == s.text else Segment(clean, s.style)
            for s in segments
        ]  # PERF: nearly every piece is clean, and needs no new one


_NOTICES = ("\x1b]9;gptoss: look here\x07", "\x1b]777;notify;gptoss;look here\x07")
_PRINTABLE = Printable()
_PATIENCE_S = 1.0  # so long a key waits for the one before, and the next ones no more
_JOINERS = ("\u200c", "\u200d")  # of Persian, and of emoji: Textual takes no such key as text
_TURN_S, _N_TURNS = 0.005, 20
_KEY_NAMES = {"escape": "Esc", "pageup": "PgUp", "pagedown": "PgDn"}


class ChatApp(App[None], inherit_bindings=False):
    """The terminal chat; the caller closes `history`, and `make_toolbox` makes a chat's tools.

    `theme` is one of Textual's, `keys` has the user's keys by ids of bindings. Raises UsageError if
    one of them does not exist.
    """

    TITLE = "gptoss"
    CSS_PATH = Path("chat.tcss")
    BINDINGS: ClassVar = []
    alerts = "all"  # or "bell", "off"
    NOTIFICATION_TIMEOUT = 3.0  # s; it covers a part of the conversation

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        """PERF: Textual draws the whole screen again at each scroll, 347 kB/s at 300 tokens/s."""
        if isinstance(renderable, CompositorUpdate):
            frame: Any = renderable
            draw, scrolls = renderable.render_segments, self.chat.transcript.region
            opened = getattr(self._driver, "_writer_thread", None)  # another one after a pause
            frame.render_segments = lambda to: self._painter.paint(
                draw(to), self.size, scrolls, opened
            )
        super()._display(screen, renderable)

    def __init__(
        self,
        server: ChatServer,
        history: History,
        conversation: Conversation,
        make_toolbox: Callable[[], Toolbox],
        *,
        theme: str = "",
        keys: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._painter, self._patience_s = Painter(), _PATIENCE_S
        guard_driver()
        if theme:
            use_theme(self, theme)
        check_keys(keys or {})
        self.set_keymap(dict(keys or {}))
        self.chat = ChatScreen(server, history, conversation, make_toolbox, dict(keys or {}))

    def get_key_display(self, binding: Binding) -> str:
        *modifiers, key = binding.key.split("+")
        name = _KEY_NAMES.get(key) or (key.title() if modifiers or len(key) > 1 else key)
        return "-".join([*map(str.title, modifiers), name])

    async def close(self) -> None:
        for room in self.chat.rooms:
            await room.toolbox.close()

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), _PRINTABLE]

    async def on_event(self, event: Event) -> None:
        if isinstance(event, Key | Paste) and not event.is_forwarded:
            event._set_forwarded()
            if isinstance(event, Key) and event.character in _JOINERS:
                event = Paste(event.character)
            await self._settle()
            await self._take(event)
            await self._settle()
        else:
            await super().on_event(event)

    async def _take(self, event: Key | Paste) -> None:
        """Do all that a key or a paste does before the next one is looked at.

        Textual hands them on by queues: letters overtake Backspace, and Ctrl-S the letters before
        it (Textual's issue 6605).
        """
        self.app_focus = True
        self.chat.take_key(event)
        key = event.key if isinstance(event, Key) else ""
        if key and await self._check_bindings(key, priority=True):
            return
        for node in (self.focused or self.screen).ancestors_with_self:
            with node._context():
                for _, handle in node._get_dispatch_methods(event.handler_name, event):
                    await invoke(handle, event)
            if event._stop_propagation:
                return
            event._no_default_action = False  # as where it is handed on

    async def _settle(self) -> None:
        """Wait for what a key began, but not long: a server may not answer."""
        start_s, n_turns = time.monotonic(), 0
        while is_settling := self._is_settling():
            if time.monotonic() - start_s > self._patience_s:
                break
            n_turns += 1
            await asyncio.sleep(_TURN_S if n_turns > _N_TURNS else 0)  # most take no time
        self._patience_s = 0.0 if is_settling else _PATIENCE_S

    def _is_settling(self) -> bool:
        """Return whether a key is acted on, or a dialog lacks its focus or messages yet."""
        if not isinstance(dialog := self.screen, Dialog):
            return self.chat.is_settling
        nodes = (self.focused or dialog).ancestors_with_self
        has_messages = any(node.message_queue_size for node in nodes if node is not self)
        return has_messages or not dialog.is_open.is_set()

    def bell(self) -> None:
        """Call the user, unless the window has the focus: by sound, and a notice (OSC 9, 777)."""
        if self.app_focus or self.alerts == "off" or self._driver is None:
            return
        super().bell()
        if self.alerts == "all" and not self.is_headless:
            self._driver.write("".join(_NOTICES))

    def action_command_palette(self) -> None:
        commands = [each for each in REGISTRY.commands if not each.needs_argument]

        def chosen(n: int | None) -> None:
            if n is not None:
                self.chat.action_command(commands[n].name)

        if self.screen is self.chat:
            lines = [f"{each.summary}  /{each.name}" for each in commands]
            self.push_screen(PickDialog("Commands", lines), chosen)

    def on_ready(self) -> None:
        """PERF: garbage collection skips everything imported, which saves 60 ms each time."""
        gc.freeze()
        gc.enable()  # `gptoss chat` starts without
        if sys.platform != "win32":  # else the terminal stays as the app has it
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.exit)

    def copy_to_clipboard(self, text: str) -> None:
        """Copy by OSC 52, which terminals may ignore, and by the desktop's own program."""
        super().copy_to_clipboard(text)
        self.notify(f"Copied {counted(len(text), 'character')}.")
        if not self.is_headless:  # tests and pictures leave the user's clipboard alone
            self.run_worker(partial(copy_natively, text), thread=True, group="clipboard")

    def get_css_variables(self) -> dict[str, str]:
        self.theme_variables = readable(super().get_css_variables())
        return self.theme_variables

    def get_default_screen(self) -> Screen[None]:
        return self.chat


_LEAST_CONTRAST = 5.2  # also on the tint under code
_NAMES = ("primary", "secondary", "accent", "success", "warning", "error")


def readable(variables: dict[str, str]) -> dict[str, str]:
    """Return a theme's variables with readable `text-primary`, `text-accent` and so on.

    Frames use these colours too. Themes in the terminal's own colours stay unchanged.
    """
    background = Color.parse(variables["background"])
    if background.ansi is not None:
        return variables | {"text-comment": variables["text-muted"]}
    changed = {f"text-{name}": Color.parse(variables[f"text-{name}"]) for name in _NAMES}
    changed["text-comment"] = Color.parse(variables["foreground"]).blend(background, 0.4)
    return variables | {name: _against(color, background).hex for name, color in changed.items()}


def _against(color: Color, background: Color) -> Color:
    end = WHITE if _luminance(background) < 0.18 else BLACK
    for percent in range(0, 100, 4):
        blended = color.blend(end, percent / 100)
        lights = sorted((_luminance(blended), _luminance(background)))
        if (lights[1] + 0.05) / (lights[0] + 0.05) >= _LEAST_CONTRAST:
            return blended
    return end


def _luminance(color: Color) -> float:
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in color.normalized
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def binding_names() -> list[str]:
    owners = ChatScreen, *chain.from_iterable(MODES.values())
    return [binding.id for binding in bindings_of(*owners) if binding.id]


def check_keys(keys: Mapping[str, str]) -> None:
    """Raise UsageError for unknown names of bindings, and for keys not in our spelling."""
    names = binding_names()
    for name, spelled in keys.items():
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(names)}."
            raise UsageError(f"[keys]: there is nothing named '{name}'", hint=hint)
        if any(not key.strip() or "-" in key for key in spelled.split(",")):
            hint = "As f9, ctrl+t or alt+left; several with commas."
            raise UsageError(f"[keys]: '{spelled}' for {name} is not a key", hint=hint)
