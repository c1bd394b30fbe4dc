"""`gptoss convert` and `gptoss verify`: options, progress, output, and checkpoints from a hub."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from convert import convert_checkpoint
from gptoss_local.base.quantities import parse_size
from gptoss_local.cli._options import repository
from tests.cli.conftest import in_terminal, run_cli
from tests.convert.gguf_file import read_gguf
from tests.convert.large import write_large
from tests.convert.test_adapter import Q, lora, write_adapter
from tests.convert.tiny import tiny_tensors, write_tiny
from tests.hub.server import HubServer, run_hub

REPO = "openai/gpt-oss-tiny"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"GPTOSS_HOME": str(tmp_path / "home")}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_large(tmp_path_factory.mktemp("large") / "large")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "source", n_shards=3)


@pytest.fixture
def model(source: Path, tmp_path: Path) -> Path:
    return convert_checkpoint(source, tmp_path / "m.gguf")[0]


@pytest.fixture
def hub(source: Path, environment: dict[str, str]) -> Iterator[HubServer]:
    with run_hub() as server:
        server.add(REPO, {path.name: path.read_bytes() for path in source.iterdir()})
        environment |= {"HF_ENDPOINT": server.endpoint, "NO_PROXY": "127.0.0.1,localhost"}
        yield server


def convert(
    environment: dict[str, str], source: Path, target: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    return run_cli(environment, "convert", str(source), str(target), *options)


def test_a_line_per_tenth(environment: dict[str, str], large: Path, tmp_path: Path) -> None:
    done = convert(environment, large, tmp_path / "m.gguf")
    *lines, last = done.stderr.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        f"convert: {percent} %" for percent in range(10, 101, 10)
    ]
    assert re.search(r"50 %, [\d.]+ MB of [\d.]+ MB, [\d.]+ [MG]B/s, \d+ s left$", lines[4])
    assert last == f"wrote {tmp_path / 'm.gguf'} (99.4 MB)"
    assert done.stdout == ""


def test_bar_on_a_terminal(environment: dict[str, str], large: Path, tmp_path: Path) -> None:
    shown = in_terminal(environment, "convert", str(large), str(tmp_path / "m.gguf"), columns=120)
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown)
    done = [float(x) for x in re.findall(r"([\d.]+)/98\.7 MB", text)]
    assert done
    assert done == sorted(done)
    assert re.search(r"convert .*MB [\d.]+ [MG]B/s \d:\d\d:\d\d", text)


def test_split_and_delete_source(environment: dict[str, str], tmp_path: Path) -> None:
    source = write_large(tmp_path / "large")
    options = ("--max-shard-size", "70MB", "--delete-source", "--json", "--dense", "bf16")
    done = convert(environment, source, tmp_path / "m.gguf", *options)
    data = json.loads(done.stdout)
    assert data["path"] == data["files"][0] == str(tmp_path / "m-00001-of-00003.gguf")
    assert data["size_bytes"] == sum(Path(p).stat().st_size for p in data["files"])
    assert not list(source.glob("*.safetensors"))


def test_dry_run(environment: dict[str, str], source: Path, tmp_path: Path) -> None:
    """It writes nothing, and shows each tensor at its place in the file."""
    target, dense = tmp_path / "m.gguf", ("--dense", "Q5_1")
    before = sorted(tmp_path.rglob("*"))
    shown = convert(environment, source, target, "--dry-run", *dense)
    plan = json.loads(convert(environment, source, target, "--dry-run", "--json", *dense).stdout)
    assert sorted(tmp_path.rglob("*")) == before
    header, *rows, total = shown.stdout.splitlines()
    assert header.split() == ["NAME", "TYPE", "SHAPE", "BYTES", "FILE", "OFFSET"]
    (file,) = plan["files"]
    assert len(rows) == len(file["tensors"]) == 22
    assert {each["type"] for each in file["tensors"]} == {"F32", "MXFP4", "Q5_1"}
    assert re.fullmatch(r"22 tensors, .* free", total)
    assert plan["free_bytes"] > 0

    assert convert(environment, source, target, "--dense", "q5_1").returncode == 0
    assert file["size_bytes"] == plan["size_bytes"] == target.stat().st_size
    data = target.read_bytes()
    for planned, (name, tensor) in zip(
        file["tensors"], read_gguf(target).tensors.items(), strict=True
    ):
        assert (planned["name"], planned["type"]) == (name, tensor.qtype.name)
        assert planned["shape"] == list(reversed(tensor.shape))
        place = slice(planned["offset"], planned["offset"] + planned["size_bytes"])
        assert data[place] == tensor.data.tobytes()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        *((f"--max-shard-size={size}", "is not a size") for size in ("4XB", "GB", "-1", "4iB")),
        ("--dense=q4_k_m", "q4_k_m is not a type for the dense weights"),
    ],
)
def test_options_that_cannot_be(
    environment: dict[str, str], source: Path, option: str, said: str
) -> None:
    done = convert(environment, source, source.with_name("m.gguf"), option)
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("4GB", 4 * 10**9), ("1.5m", 1_500_000), ("2GiB", 2 << 30), ("700", 700)]
)
def test_sizes(text: str, n_bytes: int) -> None:
    assert parse_size(text, "--max-shard-size") == n_bytes


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("me/r1", "me/r1"),
        ("me/r1@main", "me/r1@main"),
        ("https://huggingface.co/me/r1/", "me/r1"),
        ("http://www.huggingface.co/me/r1/tree/main", "me/r1@main"),
        ("https://huggingface.co/me/r1/blob/abc/config.json?x=1#top", "me/r1@abc"),
        ("huggingface.co/me/r1.5-x_y", "me/r1.5-x_y"),
        ("hf.co/me/r1", "me/r1"),
        ("hf://me/r1@v2", "me/r1@v2"),
        *((text, None) for text in ("https://example.com/me/r1", "./me/r1", "me", "me/r1/x", "")),
    ],
)
def test_repositories_as_people_name_them(text: str, name: str | None) -> None:
    assert repository(text) == name


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
    assert (data["proven"], len(data["findings"])) == (False, 22)
    assert {tensor["match"] for tensor in data["tensors"]} == {"different"}
    assert {each["name"] for each in data["classes"]} >= {"experts", "head"}


def test_a_flipped_bit(environment: dict[str, str], source: Path, model: Path) -> None:
    data = bytearray(model.read_bytes())
    data[-100] ^= 4
    model.write_bytes(data)
    done = run_cli(environment, "verify", str(model), "--tokenizer", str(source), "--quiet")
    assert done.returncode == 11
    assert "does not have the checksum in the file" in done.stderr


def test_an_adapter_of_a_repository(
    environment: dict[str, str], hub: HubServer, source: Path, tmp_path: Path
) -> None:
    adapter = write_adapter(tmp_path / "lora", {Q: lora(1, 64, 96)})
    shutil.copy(source / "tokenizer.json", adapter)  # as trainers save it
    hub.add("someone/lora", {path.name: path.read_bytes() for path in adapter.iterdir()})
    first, second = tmp_path / "1.gguf", tmp_path / "2.gguf"
    done = convert(environment, source, first, "--adapter", "someone/lora")
    assert done.returncode == 0, done.stderr
    convert(environment, source, second, "--adapter", str(adapter))
    assert first.read_bytes() == second.read_bytes()
    options = ("--against", str(source), "--adapter", "someone/lora")
    assert run_cli(environment, "verify", str(first), *options).returncode == 0
    for name, told in (("someone/none", "someone/none"), (REPO, "no file adapter_config.json")):
        done = convert(environment, source, tmp_path / "3.gguf", "--adapter", name)
        assert done.returncode in (3, 4)
        assert told in done.stderr


def test_against_a_repository(
    environment: dict[str, str], hub: HubServer, model: Path, tmp_path: Path
) -> None:
    """Nothing of it is left on the disk."""
    done = run_cli(environment, "verify", str(model), "--against", REPO)
    assert done.returncode == 0, done.stderr
    assert "downloading: 100 %" in done.stderr
    assert "verify: 100 %" in done.stderr
    assert not list((tmp_path / "home").rglob("*.safetensors"))
    for file, against, exit_code in (
        (model, "no/such/folder", 2),
        (model.with_name("none.gguf"), "", 3),
        (model, "nobody/nothing", 3),
    ):
        done = run_cli(environment, "verify", str(file), "--against", against)
        assert done.returncode == exit_code, done.stderr
