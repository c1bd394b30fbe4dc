"""The first model: `gptoss` alone in a terminal, and the one that is taken if none is named."""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.cli import _first_model
from gptoss_local.cli._first_model import _words, chosen_model
from gptoss_local.machine.hardware import Machine, read_machine
from gptoss_local.machine.plan.facts import ModelFacts
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.models.catalog import catalog, known_model
from gptoss_local.runner import fits, planning
from gptoss_local.runner.fits import all_fits, as_fit, fit_to_download, machine_facts
from tests.cli.conftest import run_cli
from tests.conftest import free_port
from tests.hub.conftest import no_account  # noqa: F401
from tests.hub.server import Fault, HubServer, run_hub
from tests.plan.machines import LARGE, SMALL, gpu, machine
from tests.pulling.test_pull import read_folder
from tests.store.gguf_parts import as_ollama_wrote_it
from tests.tui.running_chat import FRANCE, PARIS
from tests.tui.test_tmux import Tmux

needs_tmux = pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")


@pytest.fixture
def hub(nano_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub that has nano's checkpoint under the name of the small model."""
    with run_hub() as server:
        server.add("openai/gpt-oss-20b", read_folder(nano_checkpoint))
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


@pytest.fixture
def environment(hub: HubServer, empty_home: Path) -> Iterator[dict[str, str]]:
    """A user without a model and without a running server; stops any that a test started."""
    environment = os.environ | {"GPTOSS_HOME": str(empty_home), "GPTOSS_PORT": str(free_port())}
    environment |= {"LC_ALL": "C.UTF-8", "GPTOSS_CONTEXT_LENGTH": "8192"}
    yield environment
    run_cli(environment, "stop")


@pytest.fixture
def terminal() -> Iterator[Tmux]:
    tmux = Tmux((80, 30))
    yield tmux
    tmux.close()


def start(terminal: Tmux, environment: dict[str, str], term: str = "screen-256color") -> None:
    """Type `gptoss`, and keep the terminal open after it has ended."""
    script = f"trap : INT; export TERM={term}; "  # tmux sets its own
    script += f'"{sys.executable}" -m gptoss_local; echo "exit code $?"; sleep 600'
    terminal.start(["sh", "-c", script], environment)


def leave(terminal: Tmux) -> None:
    terminal.type("/quit")
    terminal.press("Enter")
    terminal.wait_for("exit code 0")


@needs_tmux
def test_a_hub_that_fails_and_nano(
    terminal: Tmux, environment: dict[str, str], hub: HubServer
) -> None:
    """Where nothing can be fetched, Enter takes the model that is here."""
    hub.strike("", Fault(status=404))
    start(terminal, environment)
    terminal.wait_for(r"Which one\? \[\d\]:\s*$")
    screen = terminal.screen()
    for row in (
        r"^Welcome to gptoss",
        r"^GPU +\S",
        r"^RAM +\d+\.\d GiB of",
        r"^Disk +[\d.]+ [GMT]B are free",
        r"^1 +gpt-oss:20b +13\.8 GB +\S",
        r"^3 +nano +is here",
    ):
        assert re.search(row, screen, re.MULTILINE), screen
    assert hub.requests == []
    terminal.type("0")
    terminal.press("Enter")
    terminal.wait_for("Type a number from 1 to 3")
    terminal.type("1")
    terminal.press("Enter")
    terminal.wait_for(r"\ngptoss: \S[\s\S]*\.\ngpt-oss:20b is not here yet\. Enter takes nano")
    terminal.wait_for(r"1 tries again\.\nWhich one\?")
    terminal.press("Enter")
    terminal.wait_for("Message, /command or @file")
    terminal.wait_for(" nano │")
    terminal.type(FRANCE)
    terminal.press("Enter")
    terminal.wait_for(re.escape(PARIS))
    leave(terminal)


@needs_tmux
def test_a_model_that_is_fetched_and_the_second_time(
    terminal: Tmux, environment: dict[str, str], hub: HubServer
) -> None:
    start(terminal, environment)
    terminal.wait_for(r"Which one\?")
    terminal.type("1")
    terminal.press("Enter")
    terminal.wait_for(r"\n[^\n]* gpt-oss:20b │")
    leave(terminal)
    assert hub.sent["model.safetensors"]
    terminal.close()
    start(terminal, environment)
    terminal.wait_for(r"\n[^\n]* gpt-oss:20b │")
    leave(terminal)
    assert "Starting the chat with your last model" in terminal.screen()


@needs_tmux
@pytest.mark.parametrize(
    ("key", "term"), [("Escape", "screen-256color"), ("C-c", "dumb"), ("C-d", "screen-256color")]
)
def test_a_question_that_is_left(
    terminal: Tmux, environment: dict[str, str], hub: HubServer, key: str, term: str
) -> None:
    before = sorted(Path(environment["GPTOSS_HOME"]).rglob("*"))
    start(terminal, environment, term)
    terminal.wait_for(r"Which one\?")
    terminal.press(key)
    terminal.wait_for("exit code 130")
    screen = terminal.screen()
    assert "`gptoss` continues here" in screen
    assert "Traceback" not in screen
    assert sorted(Path(environment["GPTOSS_HOME"]).rglob("*")) == before
    assert hub.requests == []


def test_the_help_without_a_terminal(environment: dict[str, str], hub: HubServer) -> None:
    alone, asked = run_cli(environment), run_cli(environment, "--help")
    assert alone.returncode == 2
    assert asked.returncode == 0
    assert alone.stdout + alone.stderr == asked.stdout
    assert hub.requests == []


@pytest.mark.quick
@pytest.mark.parametrize(
    ("here", "free", "number", "texts"),
    [
        (machine(gpu(16)), 10**12, 2, ["tokens/s, all on the GPU", "gpt-oss:120b is the sugg"]),
        (machine(gpu(16)), 20 * 10**9, 1, ["only 20.0 GB of disk are free", "about 18 minutes at"]),
        (machine(gpu(16)), 10**9, 3, ["No large model is expected"]),
        (machine(gpu(16), ram_gib=8), 10**12, 1, ["does not fit; 16GiB VRAM and 64GiB RAM do"]),
        (machine(ram_gib=4), 10**12, 3, ["No large model is expected"]),
    ],
)
def test_the_suggestion(
    here: Machine,
    free: int,
    number: int,
    texts: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is the largest model that is quick here and for which the disk has room."""
    asked: list[int] = []

    def take_nano(_question: str, n: int, *, default: int) -> int:
        asked.append(default)
        return n

    monkeypatch.setattr(_first_model, "choose", take_nano)
    monkeypatch.setattr("gptoss_local.runner.fits.free_bytes", lambda _: free)
    assert _first_model.ask_for_model(Settings(home=tmp_path), here) == "nano"
    printed = capsys.readouterr().out
    assert asked == [number], printed
    for text in texts:
        assert text in printed
    assert max(map(len, printed.replace(str(tmp_path), "").splitlines())) <= 80


@pytest.mark.quick
def test_what_is_said_of_the_machine(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    cards = machine_facts(machine(gpu(16), gpu(8, index=1)), settings)["GPU"].splitlines()
    assert cards[0] == "card 0, 15.5 GiB of 16.0 GiB are free"
    assert len(cards) == 2
    assert "gptoss doctor" in machine_facts(machine(gpu(16), backend="CPU"), settings)["GPU"]
    assert "none" in machine_facts(machine(), settings)["GPU"]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("facts", "here", "text"),
    [
        (SMALL, machine(gpu(12), gpu(12, index=1)), "tokens/s, all on the GPU"),
        (LARGE, machine(gpu(12), pinnable_bytes=0), "tokens/s, partly on the GPU"),
        (LARGE, machine(gpu(12), ram_gib=32), "about 2.8 tokens/s"),
        (SMALL, machine(), "without a GPU"),
    ],
)
def test_where_it_would_be(facts: ModelFacts, here: Machine, text: str) -> None:
    (model, *_) = (model for model in catalog() if model.repo)
    assert text in _words(model, as_fit(model.name, make_plan(facts, here), here))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "here", "headline"),
    [
        ("gpt-oss:20b", machine(gpu(16)), r"fits your card 0: about \d\d\d tokens/s, all of its c"),
        ("gpt-oss:20b", machine(gpu(12), gpu(12, index=1)), "fits your card 0 [+] card 1: about"),
        ("gpt-oss:120b", machine(gpu(16)), "runs on your card 0, with a part in RAM: about 2. tok"),
        ("gpt-oss:20b", machine(), "runs on this machine's CPU: about .+ tokens/s, 32,768 tokens"),
        ("gpt-oss:120b", machine(ram_gib=4), "does not fit; 16GiB VRAM and 64GiB RAM do"),
    ],
)
def test_the_sentence_and_the_bar_of_a_model(
    name: str,
    here: Machine,
    headline: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gptoss_local.runner.fits.free_bytes", lambda _: 10**12)
    model = known_model(name)
    assert model is not None
    fit = fit_to_download(model, here, Settings(home=tmp_path))
    assert re.match(f"{name}:? {headline}", fit.headline), fit.headline
    for each in fit.memory:
        assert each.model > 2**30
        assert each.model + each.context + each.free <= each.total
    assert sum(each.model for each in fit.memory) == pytest.approx(fit.file_bytes, rel=0.1) or (
        fit.fits == "no" and not fit.memory
    )


@pytest.mark.quick
def test_a_new_home_is_told_at_once(tmp_path: Path) -> None:
    """Before nano is unpacked, which takes a minute on a slow machine."""
    found = all_fits(Settings(home=tmp_path))
    assert found.is_new
    assert "gpt-oss:20b" in [fit.name for fit in found.models if fit.headline]
    assert not [*tmp_path.rglob("*.gguf")]


@pytest.mark.quick
def test_the_machine_is_looked_at_once_for_all_models(
    tmp_path: Path, nano_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, looks = Settings(home=tmp_path), list[Path]()
    settings.models_dir.mkdir(parents=True)
    for name in ("a", "b", "c"):
        (settings.models_dir / f"{name}.gguf").symlink_to(nano_gguf)
    for module in (fits, planning):
        monkeypatch.setattr(module, "read_machine", lambda p: [looks.append(p), read_machine(p)][1])
    found = {fit.name: fit.fits for fit in all_fits(settings).models}
    assert found.keys() >= {"a", "b", "c"}
    assert found["a"] != "no"
    assert len(looks) == 1


@pytest.mark.quick
def test_the_newest_that_can_be_loaded(
    tmp_path: Path, nano_gguf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that cannot be are named, with what to do."""
    settings = Settings(home=tmp_path)
    models = settings.models_dir
    models.mkdir()
    (models / "cut.gguf").write_bytes(nano_gguf.read_bytes()[:5000])
    as_ollama_wrote_it(nano_gguf, models / "theirs.gguf")
    with pytest.raises(UsageError, match="no model is on this machine"):
        chosen_model(settings)
    for name in ("older.gguf", "whole.gguf"):
        (models / name).write_bytes(nano_gguf.read_bytes())
    for age_s, name in enumerate(("theirs.gguf", "cut.gguf", "whole.gguf", "older.gguf")):
        os.utime(models / name, (10_000 - age_s, 10_000 - age_s))
    capsys.readouterr()
    assert chosen_model(settings) == "whole"
    said = capsys.readouterr()
    assert said.out == ""
    assert re.findall(r"gptoss: (.*)\n  (.*)\n", said.err) == [
        (
            "theirs is skipped, as it cannot be loaded: this is Ollama's own layout of gpt-oss, "
            "which llama.cpp cannot load",
            "Convert or fetch it again, or delete it: gptoss rm theirs",
        ),
        (
            "cut is skipped, as it cannot be loaded: supplied file was not in GGUF format",
            "Convert or fetch it again, or delete it: gptoss rm cut",
        ),
    ]
