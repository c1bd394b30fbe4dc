"""Run the servers that the benches compare, and send them requests.

A failed request ends the run.
"""

import json
import os
import random
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from gptoss_local.base.formats.gguf_file import read_array, read_tokens
from gptoss_local.base.formats.o200k import TYPES_KEY
from gptoss_local.base.settings import Settings
from gptoss_local.engine.protocol import Event, Failed
from gptoss_local.harmony import Vocabulary
from gptoss_local.models.store import adopt_file

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}
"""The sampling that OpenAI recommends for gpt-oss."""
ONE_GPU = {"CUDA_VISIBLE_DEVICES": "0"}
_START_S = 400.0


class Answer(NamedTuple):
    """Time to the first frame of tokens, from there to the last one, and the number of tokens."""

    ttft_s: float
    decode_s: float
    n_tokens: int


class Ours:
    """Send text to `gptoss serve`."""

    name = "gptoss"

    def __init__(self, url: str, model: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=600, trust_env=False)
        self._model = model

    def close(self) -> None:
        self._client.close()

    def complete(self, prompt: str, n_tokens: int, options: dict[str, float]) -> Answer:
        body = {"prompt": prompt, "raw": True, "options": options | {"num_predict": n_tokens}}
        start_s = time.perf_counter()
        with self._client.stream(
            "POST", "/api/generate", json=body | {"model": self._model}
        ) as response:
            return _answer(response, start_s, end="done", count="eval_count")


class Theirs:
    """Send token ids to `llama-server`, so that both read the same ones."""

    name = "llama-server"

    def __init__(self, url: str, vocabulary: Vocabulary) -> None:
        self._client = httpx.Client(base_url=url, timeout=600, trust_env=False)
        self._vocabulary = vocabulary

    def close(self) -> None:
        self._client.close()

    def complete(self, prompt: str, n_tokens: int, options: dict[str, float]) -> Answer:
        tokens = self._vocabulary.encode_tagged(prompt)
        body = options | {"prompt": tokens, "n_predict": n_tokens, "stream": True}
        body |= {"cache_prompt": True}
        start_s = time.perf_counter()
        with self._client.stream("POST", "/completion", json=body) as response:
            return _answer(response, start_s, end="stop", count="tokens_predicted")


Peer = Ours | Theirs


def _answer(response: httpx.Response, start_s: float, *, end: str, count: str) -> Answer:
    """Time a stream whose last frame has a true `end`, and the number of tokens as `count`."""
    times_s, last = list[float](), dict[str, Any]()
    for last in frames(response):
        if not last.get(end):
            times_s.append(time.perf_counter())
    if not last.get(end) or not times_s:
        raise SystemExit(f"an answer has no tokens or no end: {last}")
    return Answer(times_s[0] - start_s, times_s[-1] - times_s[0], last[count])


def frames(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a stream of lines, or of server-sent events.

    Raises:
        SystemExit: the request failed, before the first frame or in one; it has the error's text.
    """
    check(response)
    for line in _lines(response):
        text = line.removeprefix(b"data: ")
        if text.startswith(b"{"):
            frame = json.loads(text)
            if "error" in frame:
                raise SystemExit(f"a request failed: {frame['error']}")
            yield frame


def check(response: httpx.Response) -> httpx.Response:
    """Return a response that is not an error; end the run with the text of one that is."""
    if response.status_code != 200:
        text = response.read().decode(errors="replace")
        raise SystemExit(f"a request failed with status {response.status_code}: {text[:1000]}")
    return response


def _lines(response: httpx.Response) -> Iterator[bytes]:
    """Yield lines, where `iter_lines` also breaks at separators that an answer may contain."""
    rest = b""
    for data in response.iter_bytes():
        *whole, rest = (rest + data).split(b"\n")
        yield from whole
    yield rest


def checked(events: Sequence[Event]) -> Sequence[Event]:
    """Return the events of an engine; end the run if a request failed."""
    for event in events:
        if isinstance(event, Failed):
            raise SystemExit(f"a request failed: {event.message}")
    return events


@contextmanager
def serving(command: Sequence[str], environment: dict[str, str], ready_url: str) -> Iterator[None]:
    """Run a server until the end of the block, which begins when it answers.

    Raises:
        SystemExit: it does not answer; with the end of what it wrote.
    """
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log)

        def words() -> str:
            log.seek(0)
            return log.read()[-2000:]

        try:
            end_s = time.monotonic() + _START_S
            while not _is_ready(ready_url):
                if process.poll() is not None or time.monotonic() > end_s:
                    raise SystemExit(f"{command[0]} does not answer: {words()}")
                time.sleep(0.1)
            yield
        except BaseException:
            time.sleep(0.5)  # it writes about a failed request after the answer
            print(f"{shlex.join(command)} wrote last:\n{words()}", file=sys.stderr, flush=True)
            raise
        finally:
            process.terminate()
            process.wait()


@contextmanager
def gptoss(
    model: Path | None, settings: dict[str, str], home: str | None = None
) -> Iterator[tuple[str, str]]:
    """Run `gptoss serve`; yield its address and the model's name.

    Args:
        model: Is loaded; nano where it is None.
        home: Where its files are; an empty folder that goes with it where it is None.
    """
    with tempfile.TemporaryDirectory() if home is None else nullcontext(home) as home:
        name = adopt_file(model, Settings(home=Path(home))).name if model else "nano"
        url = free_url()
        environment = {"GPTOSS_HOME": home, "GPTOSS_PORT": url.rpartition(":")[2]}
        environment |= {"GPTOSS_KEEP_ALIVE_S": "-1", "GPTOSS_PREFIX_DISK_BYTES": "0"}
        command = [sys.executable, "-m", "gptoss_local", "serve"]
        with serving(command, environment | settings, f"{url}/api/version"):
            load(url, name)
            yield url, name


@contextmanager
def llama_server(
    program: Path, model: Path, *options: str, environment: dict[str, str] | None = None
) -> Iterator[str]:
    """Run `llama-server`; yield its address."""
    url = free_url()
    command = [str(program), "-m", str(model), "--port", url.rpartition(":")[2], *options]
    with serving(command, environment or {}, f"{url}/health"):
        yield url


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def free_url() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def load(url: str, name: str) -> float:
    """Have `gptoss serve` load a model; return the seconds that took."""
    start_s = time.monotonic()
    body = {"model": name}
    check(httpx.post(f"{url}/api/generate", json=body, timeout=_START_S, trust_env=False))
    return time.monotonic() - start_s


def vocabulary_of(model: Path) -> Vocabulary:
    return Vocabulary.from_model(read_tokens(model), read_array(model, TYPES_KEY))


def whole_words(model: Path) -> list[str]:
    """Return the vocabulary's words that are one token each with the space before them."""
    return [" " + token[1:] for token in read_tokens(model) if re.fullmatch("\u0120[a-z]+", token)]


def text(words: list[str], n_tokens: int, seed: int) -> str:
    """Make a text of random words, a token each, as llama-bench reads random tokens."""
    return "".join(random.Random(seed).choices(words, k=n_tokens))
