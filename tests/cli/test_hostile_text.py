"""No file, name or answer drives the terminal, in any command's output."""

import json
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from gptoss_local.base.printable import on_one_line, printable, shown, visible
from gptoss_local.talk.history import History
from tests.cli.conftest import in_terminal, run_cli
from tests.cli.hostile import EVIL, driven_by, hostile_server, write_gguf
from tests.conftest import RunningServer, free_port
from tests.convert.tiny import write_tiny
from tests.hub.server import run_hub
from tests.pulling.test_pull import read_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="no pty on Windows")

_ASKING = [
    ("ps",), ("ps", "-q"), ("ps", "--json"), ("status",), ("status", "--json"), ("stop", "--all"),
    ("stop", "nano"), ("stop",), ("load", "nano"), ("load", "nano", "--json"),
    ("run", "nano", "hi", "--stats"), ("run", "nano", "hi", "--json"), ("cp", "nano", "other"),
    ("create", "other", "--from", "nano"), ("plan", "nano"), ("doctor",),
]  # fmt: skip


@pytest.fixture
def home(empty_home: Path) -> dict[str, str]:
    """A user's environment, with no server at its port."""
    return os.environ | {"GPTOSS_HOME": str(empty_home), "GPTOSS_PORT": str(free_port())}


def check(
    environment: dict[str, str], *command: str, shows: str = "", typed: str = "", at: str = ""
) -> str:
    """Return the output of a command, which drives no terminal and is no traceback."""
    written = in_terminal(environment, *command, typed=typed, at=at)
    assert not driven_by(written), (command, written)
    assert "Traceback" not in written, command
    assert shows in written, command
    return written


def test_the_test_sees_what_drives_a_terminal() -> None:
    assert len(driven_by(EVIL)) >= 12
    assert not driven_by(f"{shown(EVIL)}{printable(EVIL)}{visible(EVIL)}\x1b[1mbold\x1b[0m\r\n\ta")


@pytest.mark.parametrize("command", _ASKING, ids=" ".join)
def test_a_server(home: dict[str, str], command: tuple[str, ...]) -> None:
    with hostile_server() as port:
        written = check(home | {"GPTOSS_PORT": str(port)}, *command)
    assert written.strip() or command == ("stop", "--all")


@pytest.mark.parametrize("speaks_json", [True, False])
def test_errors_of_a_server(home: dict[str, str], speaks_json: bool) -> None:
    with hostile_server(refuses=True, speaks_json=speaks_json) as port:
        for command in _ASKING:
            check(home | {"GPTOSS_PORT": str(port)}, *command)


def test_names_of_files(home: dict[str, str], nano_gguf: Path) -> None:
    """In lists, in suggestions for a misspelt name, and among the files that `gc` removes."""
    models = Path(home["GPTOSS_HOME"]) / "models"
    models.mkdir()
    name = f"nano-{EVIL}"
    (models / f"{quote(name, safe='')}.gguf").hardlink_to(nano_gguf)
    (models / f"x{EVIL}.part").write_bytes(b"x")
    os.utime(models / f"x{EVIL}.part", (1, 1))
    (models / f"{quote(EVIL, safe='')}.json").write_text('{"weights": 1}')
    commands = [
        ("ls",), ("ls", "-q"), ("ls", "--json"), ("show", name[:-1]), ("show", name), ("rm", name),
        ("gc", "--dry-run"), ("gc", "--dry-run", "--json"), ("verify", "--all"), ("show", EVIL),
        ("plan", name), ("rm", name, "-y"),
    ]  # fmt: skip
    for command in commands:
        check(home, *command, typed="n\n", shows="pwned")
    run_cli(home, "stop")


GPT_OSS = ("general.architecture", "gpt-oss")


@pytest.mark.parametrize(
    ("keys", "tensor"),
    [
        ([("general.architecture", EVIL)], ""),
        ([GPT_OSS, (EVIL, "1"), (EVIL, "2")], ""),
        ([GPT_OSS, ("general.name", EVIL), ("gpt-oss.block_count", EVIL)], ""),
        ([GPT_OSS, ("general.name", EVIL)], EVIL),
    ],
)
def test_gguf_files(
    home: dict[str, str], tmp_path: Path, keys: list[tuple[str, str]], tensor: str
) -> None:
    path = str(write_gguf(tmp_path / f"evil{EVIL}.gguf".replace("/", ""), keys, tensor))
    for command in (
        ("show",), ("show", "--json"), ("verify",), ("plan",), ("import",), ("run", "hi"),
        ("bench",),
    ):  # fmt: skip
        check(home, command[0], path, *command[1:])
    run_cli(home, "stop")


def test_a_hub(home: dict[str, str], tmp_path: Path) -> None:
    files = read_folder(write_tiny(tmp_path / "gpt-oss-20b"))
    odd = f"{EVIL}.safetensors".replace("/", "")
    with run_hub() as hub:
        hub.add("openai/gpt-oss-20b", files | {odd: b"x"})
        hub.add("ggml-org/gpt-oss-20b-GGUF", {f"{odd}.gguf": b"GGUF"})
        environment = home | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "hf")}
        for flags in (("--dry-run",), ("--dry-run", "--json"), ("--gguf",), ()):
            check(environment, "pull", "gpt-oss:20b", *flags)


def test_what_a_model_carries(home_server: RunningServer) -> None:
    """Any client may make a model."""
    create = {"model": "evil", "from": "nano", "system": EVIL, "license": EVIL}
    create |= {"messages": [{"role": "user", "content": EVIL}], "parameters": {"stop": [EVIL]}}
    answer = httpx.post(f"{home_server.url}/api/create", json=create, trust_env=False, timeout=None)
    assert answer.is_success, answer.text
    for flag in ((), ("--modelfile",), ("--json",)):
        written = check(home_server.environment, "show", "evil", *flag, shows="pwned")
        if flag == ("--json",):  # an escape is the same text to a program
            assert json.loads(written)["defaults"]["system"] == EVIL
    piped = run_cli(home_server.environment, "show", "evil", "--modelfile").stdout
    assert EVIL in piped  # to `create -f`


def test_logs_settings_and_words_of_the_command_line(
    home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Path(home["GPTOSS_HOME"]) / "log" / "server.log"
    log.parent.mkdir()
    log.write_text(f"a line with {EVIL}\n")
    (tmp_path / "gptoss").mkdir()
    (tmp_path / "gptoss" / "config.toml").write_text(
        "theme = " + json.dumps(EVIL.replace("\x7f", "")) + "\n"
    )
    home |= {"XDG_CONFIG_HOME": str(tmp_path), f"GPTOSS_{EVIL.replace('=', '')}": "1"}
    for command in (
        ("logs",), ("logs", "--json"), ("config",), ("config", "theme"), ("config", EVIL),
        ("plan", "nano", "--vram", EVIL), (EVIL,), ("ls", f"--{EVIL}"), ("show", EVIL),
        ("pull", EVIL), ("import", EVIL), ("convert", EVIL, "x.gguf"),
        ("run", "nano", f"--effort={EVIL}"), ("chat", "nano", "--effort", EVIL),
        ("create", "x", "-f", EVIL),
        ("create", "x", "--from", "nano", "-p", f"temperature={EVIL}"), ("cp", "nano", EVIL),
        ("completion", EVIL), ("run", EVIL, "hi"), ("verify", EVIL), ("load", EVIL), ("tune", EVIL),
        ("bench", EVIL), ("bench", "nano", "--plot", EVIL), ("rm", EVIL), ("chats", "-q", EVIL),
    ):  # fmt: skip
        check(home, *command, typed="\x03", at="Which one?")
    for variable in ("GPTOSS_PORT", "GPTOSS_VRAM", "GPTOSS_HOST", "OLLAMA_KEEP_ALIVE"):
        check(home | {variable: EVIL}, "config")
    run_cli(home, "stop")


def test_chats(home: dict[str, str]) -> None:
    """As another program may have stored them."""
    path = Path(home["GPTOSS_HOME"]) / "chats.sqlite3"
    history = History(path)
    chat_id = history.new_chat("nano", "low")
    turn = history.add(chat_id, None, "user", "a needle")
    history.add(chat_id, turn.id, "assistant", f"needle {EVIL} needle", state="done")
    history.close()
    with sqlite3.connect(path) as store:
        store.execute("UPDATE chat SET title = ?, model = ?", (EVIL, EVIL))
    store.close()
    for command in (("chats",), ("chats", "--json"), ("chats", "1"), ("chats", "1", "--json"),
                    ("chats", "-q", "needle"), ("chats", "-q", "needle", "--json")):  # fmt: skip
        written = check(home, *command, shows="evil")
        if "--json" in command:
            json.loads(written)
    bold = in_terminal(home, "chats", "-q", "needle")
    assert "\x1b[1mneedle\x1b[0m" in bold


def test_answers(home: dict[str, str]) -> None:
    """A terminal shows control characters; a pipe gets the model's own text."""
    with hostile_server() as port:
        environment = home | {"GPTOSS_PORT": str(port)}
        written = in_terminal(environment, "run", "nano", "hi")
        done = run_cli(environment, "run", "nano", "hi")
    assert "\\u001b]52;c;cHduZWQ=\\u0007" in written
    assert f"# {EVIL}\n\n{EVIL}\n" in done.stdout
    assert not driven_by(done.stderr)  # which may well be a terminal, or a log


def test_a_name_makes_no_second_row_of_a_table() -> None:
    assert on_one_line("a\nnano\tb\r\nc") == r"a\nnano\tb\nc"
