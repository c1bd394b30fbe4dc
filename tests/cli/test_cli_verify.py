"""`gptoss verify`: its output, exit codes, and checkpoints from a hub."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from convert import convert_checkpoint
from tests.cli.conftest import run_cli
from tests.convert.tiny import tiny_tensors, write_tiny
from tests.hub.server import HubServer, run_hub

REPO = "openai/gpt-oss-tiny"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"GPTOSS_HOME": str(tmp_path / "home")}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "source", n_shards=3)


@pytest.fixture
def model(source: Path, tmp_path: Path) -> Path:
    return convert_checkpoint(source, tmp_path / "m.gguf")[0]


@pytest.fixture
def hub(
    source: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[HubServer]:
    with run_hub() as server:
        server.add(REPO, {path.name: path.read_bytes() for path in source.iterdir()})
        environment |= {"HF_ENDPOINT": server.endpoint, "NO_PROXY": "127.0.0.1,localhost"}
        yield server


def test_proven(environment: dict[str, str], source: Path, model: Path) -> None:
    done = run_cli(environment, "verify", str(model), "--against", str(source))
    assert done.returncode == 0, done.stderr
    header, *rows = done.stdout.splitlines()
    assert header.split()[:2] == ["CLASS", "TENSORS"]
    assert {row.split()[0]: row.split()[1:5] for row in rows} == {
        "embedding": ["1", "1", "0", "0"],
        "attention": ["9", "9", "0", "0"],
        "router": ["2", "2", "0", "0"],
        "experts": ["6", "6", "0", "0"],
        "norms": ["3", "3", "0", "0"],
        "head": ["1", "1", "0", "0"],
    }
    *lines, last = done.stderr.splitlines()
    assert lines[-1].startswith("verify: 100 %")
    assert re.fullmatch(r"proven: m\.gguf, 22 tensors, 42\.5 kB in [\d.]+ s \(.*/s\)", last)


def test_every_finding_is_listed(environment: dict[str, str], model: Path, tmp_path: Path) -> None:
    other = write_tiny(tmp_path / "other", tensors=tiny_tensors(seed=1))
    options = ("verify", str(model), "--against", str(other), "--quiet")
    done = run_cli(environment, *options)
    assert done.returncode == 11
    assert done.stderr.count("  - blk.0.") == 19
    assert "  - and 2 more; --json lists them all." in done.stderr
    done = run_cli(environment, *options, "--json")
    assert done.returncode == 11
    data = json.loads(done.stdout)
    assert data["proven"] is False
    assert len(data["findings"]) == 22
    assert {tensor["match"] for tensor in data["tensors"]} == {"different"}
    assert {each["name"] for each in data["classes"]} >= {"experts", "head"}


def test_a_flipped_bit(environment: dict[str, str], source: Path, model: Path) -> None:
    data = bytearray(model.read_bytes())
    data[-100] ^= 4
    model.write_bytes(data)
    done = run_cli(environment, "verify", str(model), "--tokenizer", str(source), "--quiet")
    assert done.returncode == 11
    assert "does not have the checksum in the file" in done.stderr


@pytest.mark.parametrize(
    ("against", "exit_code"), [("no/such/folder", 2), ("", 3), ("nobody/nothing", 3)]
)
def test_what_is_not_there(
    environment: dict[str, str], hub: HubServer, model: Path, against: str, exit_code: int
) -> None:
    file = model if against else model.with_name("none.gguf")
    done = run_cli(environment, "verify", str(file), "--against", against)
    assert done.returncode == exit_code, done.stderr


def test_against_a_repository(
    environment: dict[str, str], hub: HubServer, model: Path, tmp_path: Path
) -> None:
    """Nothing of it is left on the disk."""
    done = run_cli(environment, "verify", str(model), "--against", REPO)
    assert done.returncode == 0, done.stderr
    assert "downloading: 100 %" in done.stderr
    assert "verify: 100 %" in done.stderr
    assert not list((tmp_path / "home").rglob("*.safetensors"))
