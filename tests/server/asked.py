"""A scripted server, and the prompts that its engine was given."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from gptoss_local.api.gptoss import HarmonyPiece
from gptoss_local.harmony import Vocabulary, inspect_tokens
from tests.scripted_engine import Script, run_scripted_server


class Asked:
    """The outcome of requests."""

    def __init__(self, url: str, script: Script, vocabulary: Vocabulary) -> None:
        self.url = url
        self.vocabulary = vocabulary
        self._script = script

    def post(self, path: str, **body: Any) -> httpx.Response:
        """Send a request that is not streamed."""
        whole = {"model": "nano", "stream": False} | body
        return httpx.post(self.url + path, json=whole, timeout=300, trust_env=False)

    @property
    def prompts(self) -> list[list[int]]:
        return self._script.prompts

    def prompt(self) -> str:
        """The last prompt as text."""
        return str(self.vocabulary.encoding.decode(self.prompts[-1]))

    def pieces(self) -> list[HarmonyPiece]:
        """The messages of the last prompt, but the system message and the begun answer."""
        return inspect_tokens(self.prompts[-1], (), (), self.vocabulary)[1:-1]

    def texts(self, author: str = "") -> list[str]:
        """Their texts, or one author's."""
        return [piece.text for piece in self.pieces() if author in ("", piece.author)]

    def done(self) -> list[tuple[str, str, str]]:
        """Channel, recipient and text of each step of the assistant."""
        mine = (p for p in self.pieces() if p.author == "assistant")
        return [(p.channel, p.recipient, p.text) for p in mine]


@contextmanager
def run_asked(home: Path, vocabulary: Vocabulary, script: Script) -> Iterator[Asked]:
    """Run a server that plays a script."""
    with run_scripted_server(home, script) as server:
        yield Asked(server.url, script, vocabulary)
