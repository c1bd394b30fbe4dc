"""Make the pictures of the chat in docs/.

    python -m docs.screenshots [FOLDER [THEME]]

The chat and the server are the real ones; the model is a script (`tests/scripted_engine`), so the
answers are the same every time. With a theme all pictures have it, to look at them.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from html import unescape
from pathlib import Path

import httpx
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from gptoss_local.api.client import AsyncClient
from gptoss_local.base.settings import Settings, ToolCommand
from gptoss_local.harmony import Vocabulary, load_vocabulary
from gptoss_local.models.nano import ensure_gguf
from gptoss_local.talk.history import History, Turn
from gptoss_local.talk.tools import ToolSources
from tests.conftest import RunningServer
from tests.scripted_engine import Script, answer, calls, calls_built_in, run_scripted_server
from tui.app import ChatApp
from tui.conversation import Conversation
from tui.server import ChatServer

_MODEL = "gpt-oss:20b"
_WEATHER = ToolCommand(
    command=("echo", '{"temperature": 21, "description": "sunny"}'),
    description="Gets the current weather in the provided location.",
    parameters={
        "type": "object",
        "properties": {"location": {"type": "string", "description": "The name of the city"}},
        "required": ["location"],
    },
)
_LARGE, _WIDE, _SMALL = (100, 40), (120, 22), (80, 24)
_DARK, _LIGHT = "textual-dark", "textual-light"

_DUPLICATES = "How do I find duplicate files in a folder with Python?"
_DUPLICATES_ANSWER = '''\
Files with the same content have the same hash. **Compare sizes first**: most files differ there,
and need not be read.

```python
from collections import defaultdict
from hashlib import sha256
from pathlib import Path


def duplicates(folder: Path) -> list[list[Path]]:
    """Return groups of files with the same content."""
    by_size = defaultdict(list)
    for path in folder.rglob("*"):
        if path.is_file():
            by_size[path.stat().st_size].append(path)
    by_hash = defaultdict(list)
    for paths in by_size.values():
        for path in paths if len(paths) > 1 else []:
            by_hash[sha256(path.read_bytes()).digest()].append(path)
    return [paths for paths in by_hash.values() if len(paths) > 1]
```

How much is read, for \\( n \\) files of which \\( k \\) share a size:

| Method             | Files read | Finds renamed copies |
|--------------------|-----------:|:--------------------:|
| Compare names      |          0 |          no          |
| Hash everything    |        all |         yes          |
| Sizes, then hashes |   \\( k \\)    |         yes          |

For very large files, hash in pieces with `hashlib.file_digest`.
'''
_DUPLICATES_REASONING = (
    "The user wants duplicate files. Hashing everything reads all bytes; grouping by size first "
    "avoids most of that. I will give a short function, and a table that compares the methods."
)
_WEATHER_QUESTION = "What is the weather in Tokyo? As a table, please."
_WEATHER_ANSWER = """\
| City  | Temperature | Sky   |
|-------|------------:|-------|
| Tokyo |       21 °C | sunny |
"""
_SUNDAYS = "How many months of this century begin with a Sunday?"
_SUNDAYS_CODE = """\
from datetime import date

sundays = [
    (year, month)
    for year in range(2001, 2101)
    for month in range(1, 13)
    if date(year, month, 1).weekday() == 6
]
print(len(sundays), sundays[:3])
"""
_SUNDAYS_IN_WORDS = "Which day was 1 January 2001?"
_PRIMES = "Is 221 a prime number?"


def make_script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.say(
        _DUPLICATES, answer(_DUPLICATES_ANSWER, _DUPLICATES_REASONING, tok_s=120, prefill_s=0.2)
    )
    script.say(
        _WEATHER_QUESTION,
        calls("get_current_weather", {"location": "Tokyo"}, "I need the weather in Tokyo."),
        answer(_WEATHER_ANSWER, "Now I have it."),
    )
    script.say(
        _SUNDAYS,
        calls_built_in("python", _SUNDAYS_CODE, "Let me count the months from 2001 to 2100."),
        answer("**172** of the 1,200 months from 2001 to 2100 begin with a Sunday."),
    )
    script.say(
        _SUNDAYS_IN_WORDS,
        answer(
            "A **Monday**: see [the calendar](https://www.timeanddate.com/calendar/?year=2001)."
        ),
    )
    script.say(_PRIMES, answer("No: 221 = 13 × 17.", "221 / 13 = 17, so it is not."))
    script.say(
        _PRIMES,
        answer(
            "No. It is enough to try the primes up to √221 ≈ 14.9:\n\n"
            "| Divisor | Remainder |\n|--------:|----------:|\n"
            "| 2 | 1 |\n| 3 | 2 |\n| 5 | 1 |\n| 7 | 4 |\n| 11 | 1 |\n| 13 | **0** |\n\n"
            "So \\( 221 = 13 \\times 17 \\).",
            "Try the primes up to the root: 2, 3, 5, 7, 11, 13. 13 * 17 = 221. Not a prime.",
        ),
        effort="high",
    )
    script.otherwise(answer("one, two, three, " * 200, tok_s=20))
    return script


class Session:
    """A chat that a scene drives."""

    def __init__(self, app: ChatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await self.pilot.pause(0.05)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def enter(self, text: str) -> None:
        self.app.chat.prompt.insert(text)
        await self.press("enter")

    async def ask(self, text: str) -> None:
        async with self.answered():
            await self.enter(text)

    async def begin(self) -> None:
        """Begin another chat."""
        await self.press("ctrl+n")
        await self.until(lambda: not self.app.chat.conversation.turns)

    @asynccontextmanager
    async def answered(self) -> AsyncIterator[None]:
        """Wait at the end of the block for a new answer."""
        before = self._last_turn
        yield
        await self.until(lambda: self._has_answer(before))

    async def asked(self, question: str) -> None:
        """Send a message and wait until the model asks to run something, and keys answer it."""
        await self.enter(question)
        await self.until(lambda: self.app.chat.question.display)
        await self.pilot.pause(1)  # keys that come sooner were not meant for the question

    async def shows(self, *texts: str) -> None:
        """Wait until the beginnings of texts are on the screen: a list cuts long ones."""
        wanted = [text[:12].replace(" ", "\N{NO-BREAK SPACE}") for text in texts]
        await self.until(lambda: all(text in unescape(self._picture()) for text in wanted))

    async def settled(self) -> str:
        """Return the picture once it stays the same; or after a while, as an answer may stream."""
        for area in self.app.screen.query(TextArea):  # or its cursor, which blinks, splits a word
            area.read_only, area.show_cursor = True, False
        n_same, now = 0, self._picture()
        for _ in range(100):
            await self.pilot.pause(0.1)
            before, now = now, self._picture()
            n_same = n_same + 1 if before == now else 0
            if n_same == 4:
                break
        return now

    def _picture(self) -> str:
        return self.app.export_screenshot(title="gptoss chat")

    @property
    def _last_turn(self) -> Turn | None:
        turns = self.app.chat.conversation.turns
        return turns[-1] if turns else None

    def _has_answer(self, before: Turn | None) -> bool:
        last, chat = self._last_turn, self.app.chat
        is_new = last is not None and (before is None or last.id != before.id)
        is_complete = last is not None and (last.role, last.state) == ("assistant", "done")
        return is_new and is_complete and not chat.is_answering and chat.loaded is not None


async def start(session: Session) -> None:
    """Show the start of a chat, with earlier ones."""
    for question in (_PRIMES, _WEATHER_QUESTION):
        await session.ask(question)
        await session.begin()
    await session.shows(_PRIMES, _WEATHER_QUESTION)


async def menu(session: Session) -> None:
    """The commands that begin so."""
    await session.press("/", "e", "down")


async def chats(session: Session) -> None:
    """All chats, with the end of the marked one."""
    await start(session)
    await session.press("f2")
    await session.until(lambda: isinstance(session.app.screen.focused, Input))
    session.app.screen.set_focus(None)  # or its cursor splits a word


async def next_to(session: Session) -> None:
    """The chats next to one of them."""
    await start(session)
    await session.ask(_SUNDAYS_IN_WORDS)


async def talk(session: Session) -> None:
    """A question, and an answer with code and a table."""
    await session.ask(_DUPLICATES)


async def compute(session: Session) -> None:
    """Code of the model's waits for a word."""
    await session.asked(_SUNDAYS)


async def approve(session: Session) -> None:
    """A call of a tool waits for a word."""
    await session.asked(_WEATHER_QUESTION)


async def tool(session: Session) -> None:
    """A call that was allowed, its arguments and result open."""
    await approved(session)
    views = session.app.chat.transcript.views()
    views[1].focus()
    await session.press("space")
    views[2].focus()
    await session.press("space", "escape")


async def approved(session: Session) -> None:
    await approve(session)
    async with session.answered():
        await session.press("down", "down", "enter")


async def inspect(session: Session) -> None:
    """Harmony's messages."""
    await approved(session)
    await session.press("f9")
    await session.until(lambda: session.app.screen is not session.app.chat)


async def compare(session: Session) -> None:
    """Two efforts side by side."""
    await session.ask(_PRIMES)
    async with session.answered():
        await session.press("f5")
    await session.enter("/compare")
    await session.until(lambda: session.app.screen is not session.app.chat)


async def wait(session: Session) -> None:
    """A message that waits while an answer streams."""
    await session.enter("Count from 1 to 300.")
    await session.enter(_PRIMES)


Scene = Callable[[Session], Awaitable[None]]
PICTURES: dict[str, tuple[Scene, tuple[int, int], str]] = {
    "chat": (talk, _LARGE, _DARK),
    "chat-start": (start, _SMALL, _DARK),
    "chat-menu": (menu, _SMALL, _DARK),
    "chat-list": (chats, _SMALL, _LIGHT),
    "chat-wide": (next_to, _WIDE, _DARK),
    "chat-light": (tool, _SMALL, _LIGHT),
    "tools": (compute, _SMALL, _LIGHT),
    "chat-harmony": (inspect, _LARGE, _DARK),
    "chat-compare": (compare, _WIDE, _DARK),
}
_TO_LOOK_AT: dict[str, tuple[Scene, tuple[int, int], str]] = {
    "approve": (approve, _SMALL, _DARK),
    "wait": (wait, _SMALL, _DARK),
}


def main(folder: Path, theme: str) -> None:
    with tempfile.TemporaryDirectory() as home:
        ensure_gguf(Path(home) / "cache")
        with run_script(Path(home)) as server:
            for name, picture in (PICTURES | (_TO_LOOK_AT if theme else {})).items():
                scene, size, own_theme = picture
                text = asyncio.run(photograph(server, scene, size, theme or own_theme))
                (folder / f"{name}.svg").write_text(text, encoding="utf-8")


@contextmanager
def run_script(home: Path) -> Iterator[RunningServer]:
    """Start a server with the script as its model; nano is in the cache of `home`."""
    ensure_gguf(home / "cache")
    vocabulary = load_vocabulary()
    with run_scripted_server(home, make_script(vocabulary)) as server:
        copy = {"source": "nano", "destination": _MODEL}
        httpx.post(f"{server.url}/api/copy", json=copy, trust_env=False).raise_for_status()
        yield server


async def photograph(server: RunningServer, scene: Scene, size: tuple[int, int], theme: str) -> str:
    """Play a scene and return what is on the screen then, as SVG."""
    client = AsyncClient(Settings(port=int(server.url.rpartition(":")[2]), home=server.home))
    with tempfile.TemporaryDirectory() as chats:
        history = History(Path(chats) / "chats.sqlite3")
        conversation = Conversation(history, _MODEL, "medium")
        tools = {"get_current_weather": _WEATHER} if scene in (tool, approve, inspect) else {}
        enabled = "python" if scene is compute else ""
        settings = Settings(tools=tools, enabled_tools=enabled)
        make = ToolSources(settings, Path(chats)).toolbox
        app = ChatApp(ChatServer(client), history, conversation, make, theme=theme)
        async with app.run_test(size=size) as pilot:
            session = Session(app, pilot)
            await session.until(lambda: app.chat.model_names)
            await scene(session)
            text = await session.settled()
        history.close()
    await client.close()
    return text


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(
        Path(arguments[0]) if arguments else Path(__file__).parent,
        arguments[1] if len(arguments) > 1 else "",
    )
