"""Shared fixtures: the real nano model, real servers in processes of their own."""

import asyncio
import functools
import hashlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import httpx
import httpx2
import hypothesis
import psutil
import pytest
from filelock import FileLock

from gptoss_local.base.settings import Settings
from gptoss_local.harmony import Vocabulary, load_vocabulary
from gptoss_local.models.nano import MODEL_NAME, ensure_gguf
from gptoss_local.models.nano.materialize import materialize
from gptoss_local.models.nano.ranks import load_ranks
from gptoss_local.models.store import find_model
from gptoss_local.runner.manager import ModelManager
from gptoss_local.talk.history import History
from tests.convert.gguf_file import read_gguf
from tests.convert.write_gguf import write_without_vocabulary
from tests.nano.tiktoken_file import render_tiktoken

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

ROOT = Path(__file__).parents[1]


def _keep_certificates(transports: Any) -> None:
    """Let clients share the authorities' certificates, which each would read for 20 ms."""
    make = transports.create_ssl_context
    kept = functools.cache(lambda trust_env, *_: make(verify=True, trust_env=trust_env))

    def create(verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
        if verify is not True or cert:
            return make(verify, cert, trust_env)
        return kept(trust_env, *map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))

    transports.create_ssl_context = create


for http in (httpx, httpx2):
    _keep_certificates(http._transports.default)  # type: ignore[attr-defined]

# How long an example takes says how busy the machine is, so there is no deadline.
hypothesis.settings.register_profile("ci", deadline=None, max_examples=25)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=500)
hypothesis.settings.load_profile("ci")  # unless --hypothesis-profile=nightly


@pytest.fixture(scope="session", autouse=True)
def clean_environment() -> Iterator[None]:
    """No setting of the developer's machine reaches a test, or a server that tests share."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    if sys.platform != "win32":
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # likewise
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in [n for n in os.environ if n.startswith(("GPTOSS_", "OLLAMA_"))]:
            monkeypatch.delenv(name)
        for name in ("COLUMNS", "LINES"):  # of pytest's own terminal; xdist sets them
            monkeypatch.delenv(name, raising=False)
        # Hundreds of processes start here, each half a second earlier from compiled modules.
        monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        monkeypatch.setenv("XDG_CONFIG_HOME", "/nonexistent")
        monkeypatch.setenv("OLLAMA_MODELS", "/nonexistent")
        yield


@pytest.fixture(scope="session")
def built_nano() -> Path:
    """nano's checkpoint and model file, built once for all workers and until their code changes.

    It has been loaded once: an engine that measures its steps first takes a second longer.
    """
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for folder in ("convert", "gptoss_local/base/formats", "gptoss_local/models/nano"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                digest.update(path.read_bytes())
    folder = ROOT / ".pytest_cache" / "nano"
    built = folder / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock", timeout=250):
        if not built.is_dir():
            for old in folder.iterdir():
                shutil.rmtree(old, ignore_errors=True)  # the lock is not a folder
            partial = folder / "partial"
            checkpoint = partial / MODEL_NAME
            materialize(checkpoint)
            with patch("gptoss_local.models.nano.materialize.materialize") as unpack:
                unpack.side_effect = lambda folder, **_: shutil.copytree(checkpoint, folder)
                ensure_gguf(partial / "cache")
            asyncio.run(_measure(partial))
            nano = read_gguf(ensure_gguf(partial / "cache"))
            write_without_vocabulary(partial / "bare.gguf", nano)
            partial.rename(built)
    return built


async def _measure(home: Path) -> None:
    settings = Settings(home=home)
    manager = ModelManager(settings)
    async with manager.use(find_model(MODEL_NAME, settings)):
        await manager.close()


def give_nano(home: Path, cache: Path) -> None:
    """Make a cache like a home's, with the same file of nano, as measurements are of one file."""
    shutil.copytree(home / "cache", cache, copy_function=_link_or_copy)


def _link_or_copy(source: str, copy: str) -> None:
    try:
        if source.endswith(".gguf"):
            return os.link(source, copy)
    except OSError:  # on another file system
        pass
    shutil.copy2(source, copy)


@pytest.fixture(scope="session")
def nano_home(tmp_path_factory: pytest.TempPathFactory, built_nano: Path) -> Path:
    """A GPTOSS_HOME with nano; do not write models into it."""
    home = tmp_path_factory.mktemp("home")
    give_nano(built_nano, home / "cache")
    return home


@pytest.fixture(scope="session")
def nano_gguf(nano_home: Path) -> Path:
    return ensure_gguf(nano_home / "cache")


@pytest.fixture(scope="session")
def bare_gguf(built_nano: Path) -> Path:
    """nano without its vocabulary, for tests of token ids, which load it in no time."""
    return built_nano / "bare.gguf"


@pytest.fixture(scope="session")
def nano_checkpoint(built_nano: Path) -> Path:
    """The source of nano's conversion; do not write into it."""
    return built_nano / MODEL_NAME


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return load_vocabulary()


@pytest.fixture(scope="session")
def harmony_encoding(tmp_path_factory: pytest.TempPathFactory) -> "HarmonyEncoding":
    """openai-harmony's own, with which prompts are compared; it checks the hash of its file."""
    import openai_harmony

    folder = tmp_path_factory.mktemp("harmony")
    (folder / "o200k_base.tiktoken").write_bytes(render_tiktoken(load_ranks()))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("TIKTOKEN_ENCODINGS_BASE", str(folder))
        return openai_harmony.load_harmony_encoding("HarmonyGptOss")


@pytest.fixture
def history_path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "chats.sqlite3"


@pytest.fixture
def history(history_path: Path) -> Iterator[History]:
    opened = History(history_path)
    yield opened
    opened.close()


@dataclass
class RunningServer:
    """A `gptoss serve` process on a free port."""

    url: str
    process: subprocess.Popen[bytes]
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a command line reaches this server."""
        port = self.url.rpartition(":")[2]
        return os.environ | {"GPTOSS_HOME": str(self.home), "GPTOSS_PORT": port}

    @property
    def owner(self) -> dict[str, str]:
        """The header by which programs of this account are known."""
        name = f"{self.url.removeprefix('http://').replace(':', '-')}.secret"
        secret = (self.home / "run" / name).read_text(encoding="utf-8")
        return {"authorization": f"Bearer {secret}"}

    def link(self) -> str:
        """The link that `gptoss web` opens, without the address of the server."""
        url = f"{self.url}/api/gptoss/links"
        made = httpx.post(url, headers=self.owner, trust_env=False)
        return str(made.raise_for_status().json()["path"])

    def engines(self) -> list[psutil.Process]:
        """The engine processes, also of models that load."""
        return engines_of(psutil.Process(self.process.pid))

    def engine(self) -> psutil.Process | None:
        """The engine process, while a model is loaded."""
        engines = self.engines()
        return engines[0] if engines else None

    @contextmanager
    def engine_suspended(self) -> Iterator[None]:
        """Nothing is computed meanwhile; a model must be loaded."""
        engine = self.engine()
        assert engine is not None
        engine.suspend()
        try:
            yield
        finally:
            engine.resume()


def engines_of(server: psutil.Process) -> list[psutil.Process]:
    """Children that run a program of their own.

    One that has not begun it is a copy of the server, which waits for it (vfork): to suspend it
    would suspend the server.
    """
    command = server.cmdline()
    return [child for child in server.children() if _command(child) != command]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has ended
        return []


def free_port() -> int:
    """Return a port that is free on all addresses, and that no outgoing connection is given."""
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as s, suppress(OSError):
            s.bind(("", port))
            return port


@contextmanager
def run_server(
    home: Path,
    module: str = "gptoss_local",
    variables: Mapping[str, str] | None = None,
    **settings: str,
) -> Iterator[RunningServer]:
    """Start a server of its own on a free port and stop it afterwards."""
    port = free_port()
    environment = os.environ | {"GPTOSS_HOME": str(home), "GPTOSS_PORT": str(port)}
    environment["GPTOSS_PREFIX_DISK_BYTES"] = "0"  # servers of other tests share the home
    environment |= {f"GPTOSS_{name.upper()}": value for name, value in settings.items()}
    environment |= variables or {}
    process = subprocess.Popen([sys.executable, "-m", module, "serve"], env=environment)
    server = RunningServer(f"http://127.0.0.1:{port}", process, home)
    try:
        wait_until(lambda: _answers(server.url))
        yield server
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="session")
def server(nano_home: Path) -> Iterator[RunningServer]:
    """One server for all tests that leave it as they found it."""
    with run_server(nano_home) as running:
        yield running


@pytest.fixture
def own_server(nano_home: Path) -> Iterator[RunningServer]:
    """A fresh server for a test that breaks something."""
    with run_server(nano_home) as running:
        yield running


@pytest.fixture
def empty_home(tmp_path: Path, nano_home: Path) -> Path:
    """A GPTOSS_HOME of its own with nano built."""
    give_nano(nano_home, tmp_path / "home" / "cache")
    return tmp_path / "home"


@pytest.fixture
def home_server(empty_home: Path) -> Iterator[RunningServer]:
    """A server for a test that adds or removes models."""
    with run_server(empty_home) as running:
        yield running


PATIENCE_S = 120.0
"""How long a test waits for a state: a busy machine needs seconds, one that is stuck never ends."""


def wait_until(condition: object, *, timeout_s: float = PATIENCE_S) -> None:
    """Poll until `condition()` holds, or fail."""
    assert callable(condition)
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "timed out"
        time.sleep(0.02)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).is_success
    except httpx.TransportError:
        return False


def pytest_configure(config: pytest.Config) -> None:
    """Run all tests of files and folders that the command line names."""
    arguments = config.invocation_params.args
    is_named = config.args_source is pytest.Config.ArgsSource.ARGS
    is_chosen = any(str(argument).startswith("-m") for argument in arguments)
    if is_named and not is_chosen:
        config.option.markexpr = ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timing"):  # another process may have had the machine
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Report why a test was run once more, as its second run may pass."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"run again: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
