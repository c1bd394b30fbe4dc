"""Commands around the models folder: pull, import, verify, gc, and the first model of all."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gptoss_local.models.catalog import catalog
from tests.cli.conftest import PseudoTerminal, run_cli
from tests.conftest import free_port
from tests.convert.tiny import write_tiny
from tests.hub.conftest import no_account  # noqa: F401
from tests.hub.server import HubServer, run_hub
from tests.pulling.test_pull import read_folder
from tests.store.test_elsewhere import ollama_model

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with run_hub() as server:
        files = read_folder(write_tiny(tmp_path / "gpt-oss-20b", n_shards=2))
        server.add("openai/gpt-oss-20b", files)
        server.add("ggml-org/gpt-oss-20b-GGUF", {"gpt-oss-20b-mxfp4.gguf": b"GGUF"})
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


@pytest.fixture
def environment(hub: HubServer, empty_home: Path) -> Iterator[dict[str, str]]:
    """A user without a model and without a running server; stops any that a test started."""
    port = str(free_port())
    environment = os.environ | {"GPTOSS_HOME": str(empty_home), "GPTOSS_PORT": port}
    yield environment
    run_cli(environment, "stop")


def terminal(environment: dict[str, str], *arguments: str) -> PseudoTerminal:
    command = [sys.executable, "-m", "gptoss_local", *arguments]
    return PseudoTerminal(command, environment | {"COLUMNS": "120"}, Path())


def installed(environment: dict[str, str]) -> dict[str, bool]:
    """Names, and whether the model lies elsewhere."""
    models = json.loads(run_cli(environment, "ls", "--json").stdout)["models"]
    return {model["name"]: model["in_place"] for model in models}


def test_catalogue_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "gptoss").mkdir()
    (tmp_path / "gptoss" / "models.toml").write_text(text)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert [model.name for model in catalog()][5:] == ["coder:20b", "my-tune", "ready"]


def test_the_first_model_is_asked_for(environment: dict[str, str], hub: HubServer) -> None:
    asked = terminal(environment, "run", "--effort", "low")
    try:
        asked.read_until("Which one?")
        assert re.search(r"1 +gpt-oss:20b +13\.8 GB +\S", asked.screen), asked.screen
        assert re.search(r"2 +gpt-oss:120b +65\.2 GB +\S", asked.screen)
        asked.type("3\r")
        asked.read_until(">>> ")
        asked.type("/bye\r")
        assert asked.process.wait() == 0
    finally:
        asked.close()
    assert not hub.sent
    asked = terminal(environment, "run")
    try:
        asked.read_until("Which one?")
        asked.type("1\r")
        asked.read_until("gptoss: ")  # the tiny model of this hub can be pulled, not loaded
    finally:
        asked.close()
    assert "gpt-oss:20b" in installed(environment)


@pytest.mark.parametrize(
    "command", [("run", "20b", "hi"), ("launch", "codex", "--model", "20b")], ids=" ".join
)
def test_a_model_that_is_named_is_offered(
    environment: dict[str, str], hub: HubServer, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "codex").touch(0o755)
    path = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    asked = terminal(environment | {"PATH": path}, *command)
    try:
        asked.read_until("Download it (13.8 GB)? [Y/n]")
        asked.type("n\r")
        assert asked.process.wait() == 3
    finally:
        asked.close()
    assert hub.requests == []


def test_what_ollama_has_is_offered(
    environment: dict[str, str], tmp_path: Path, nano_gguf: Path, hub: HubServer
) -> None:
    ollama = tmp_path / "ollama"
    blob = ollama_model(ollama, "registry.ollama.ai/library/gpt-oss/20b", nano_gguf)
    environment |= {"OLLAMA_MODELS": str(ollama)}
    asked = terminal(environment, "pull", "20b")
    try:
        asked.read_until("Ollama has gpt-oss:20b on this disk")
        asked.type("y\r")
        asked.read_until("is on this machine already")
        assert asked.process.wait() == 0
    finally:
        asked.close()
    assert hub.requests == []
    assert installed(environment)["gpt-oss:20b"]
    assert run_cli(environment, "rm", "-y", "20b").returncode == 0
    assert blob.is_file()
    told = run_cli(environment, "pull", "20b")
    assert "to use that: gptoss import ollama/gpt-oss:20b gpt-oss:20b" in told.stderr
    assert hub.sent
    listed = json.loads(run_cli(environment, "import", "--json").stdout)["models"]
    assert [(each["name"], each["problem"]) for each in listed] == [("ollama/gpt-oss:20b", "")]
    assert run_cli(environment, "import", "ollama/gpt-oss:20").returncode == 3


def test_damage_is_found_and_named(
    environment: dict[str, str], tmp_path: Path, nano_gguf: Path
) -> None:
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(nano_gguf.read_bytes())
    blob = ollama_model(tmp_path / "ollama", "registry.ollama.ai/library/tune/1", copy)
    environment |= {"OLLAMA_MODELS": str(tmp_path / "ollama")}
    assert run_cli(environment, "import", "ollama/tune:1", "tuned").returncode == 0
    whole = run_cli(environment, "verify", "--all").stdout
    assert re.search(r"^tuned .*whole: the sha256 is right$", whole, re.MULTILINE), whole
    assert re.search(r"^nano .*whole: all sums are right$", whole, re.MULTILINE)
    with blob.open("r+b") as file:
        file.seek(-1000, os.SEEK_END)
        byte = file.read(1)
        file.seek(-1000, os.SEEK_END)
        file.write(bytes([byte[0] ^ 1]))
    done = run_cli(environment, "verify", "--all", "--json")
    assert done.returncode == 11
    assert list(json.loads(done.stdout)["damaged"]) == ["tuned"]
    assert "1 of 2 models are damaged" in done.stderr
    assert str(blob) in done.stderr
    one = run_cli(environment, "verify", "tuned")
    assert (one.returncode, str(blob) in one.stderr) == (11, True)
    for wrong, code in ((["verify"], 2), (["verify", "--all", "nano"], 2), (["verify", "no"], 3)):
        assert run_cli(environment, *wrong).returncode == code


def test_gc(environment: dict[str, str]) -> None:
    models = Path(environment["GPTOSS_HOME"]) / "models"
    (models / "x.gguf.download").mkdir(parents=True)
    for name, n_bytes in (("y.1234.part", 3000), ("x.gguf.download/shard", 5000)):
        (models / name).write_bytes(bytes(n_bytes))
        os.utime(models / name, (1000, 1000))
    os.utime(models / "x.gguf.download", (1000, 1000))
    dry = run_cli(environment, "gc", "--dry-run")
    assert re.search(r"^y\.1234\.part +3\.0 kB +part$", dry.stdout, re.MULTILINE)
    assert "3.0 kB could be freed" in dry.stderr
    assert "5.0 kB belong to interrupted pulls" in dry.stderr
    done = json.loads(run_cli(environment, "gc", "--json").stdout)
    assert (done["freed_bytes"], len(done["kept"])) == (3000, 1)
    assert [path.name for path in models.iterdir()] == ["x.gguf.download"]
    run_cli(environment, "gc", "--interrupted")
    assert list(models.iterdir()) == []
