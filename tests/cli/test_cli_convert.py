"""`gptoss convert`: its options, progress and output."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import in_terminal, run_cli
from tests.convert.large import write_large
from tests.convert.tiny import write_tiny


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"GPTOSS_HOME": str(tmp_path / "home")}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_large(tmp_path_factory.mktemp("large") / "large")


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


def test_split_and_delete_source(environment: dict[str, str], tmp_path: Path) -> None:
    source = write_large(tmp_path / "large")
    options = ("--max-shard-size", "70MB", "--delete-source", "--json", "--dense", "bf16")
    done = convert(environment, source, tmp_path / "m.gguf", *options)
    data = json.loads(done.stdout)
    assert data["path"] == data["files"][0] == str(tmp_path / "m-00001-of-00003.gguf")
    assert data["size_bytes"] == sum(Path(p).stat().st_size for p in data["files"])
    assert not list(source.glob("*.safetensors"))


def test_dry_run(environment: dict[str, str], tmp_path: Path) -> None:
    source, target = write_tiny(tmp_path / "tiny"), tmp_path / "m.gguf"
    before = sorted(tmp_path.rglob("*"))
    shown = convert(environment, source, target, "--dry-run")
    plan = json.loads(convert(environment, source, target, "--dry-run", "--json").stdout)
    assert sorted(tmp_path.rglob("*")) == before
    header, *rows, total = shown.stdout.splitlines()
    assert header.split() == ["NAME", "TYPE", "SHAPE", "BYTES", "FILE", "OFFSET"]
    (file,) = plan["files"]
    assert len(rows) == len(file["tensors"]) == 22
    assert total.startswith("22 tensors, ")
    assert total.endswith(" free")
    assert plan["free_bytes"] > 0

    assert convert(environment, source, target).returncode == 0
    from tests.convert.gguf_file import read_gguf

    assert file["size_bytes"] == plan["size_bytes"] == target.stat().st_size
    data = target.read_bytes()
    for planned, (name, tensor) in zip(
        file["tensors"], read_gguf(target).tensors.items(), strict=True
    ):
        assert (planned["name"], planned["type"]) == (name, tensor.qtype.name)
        assert planned["shape"] == list(reversed(tensor.shape))
        place = slice(planned["offset"], planned["offset"] + planned["size_bytes"])
        assert data[place] == tensor.data.tobytes()


@pytest.mark.parametrize("size", ["4XB", "GB", "-1", "4iB"])
def test_sizes_that_are_none(environment: dict[str, str], tmp_path: Path, size: str) -> None:
    done = convert(environment, tmp_path, tmp_path / "m.gguf", f"--max-shard-size={size}")
    assert done.returncode == 2
    assert "is not a size" in done.stderr


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("4GB", 4 * 10**9), ("1.5m", 1_500_000), ("2GiB", 2 << 30), ("700", 700)]
)
def test_sizes(text: str, n_bytes: int) -> None:
    from gptoss_local.base.quantities import parse_size

    assert parse_size(text, "--max-shard-size") == n_bytes


def test_bar_on_a_terminal(environment: dict[str, str], large: Path, tmp_path: Path) -> None:
    shown = in_terminal(environment, "convert", str(large), str(tmp_path / "m.gguf"), columns=120)
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown)
    done = [float(x) for x in re.findall(r"([\d.]+)/98\.7 MB", text)]
    assert done
    assert done == sorted(done)
    assert re.search(r"convert .*MB [\d.]+ [MG]B/s \d:\d\d:\d\d", text)


def test_types_of_the_dense_weights(environment: dict[str, str], tmp_path: Path) -> None:
    source, target = write_tiny(tmp_path / "tiny"), tmp_path / "m.gguf"
    done = convert(environment, source, target, "--dense", "Q5_1")
    assert done.returncode == 0, done.stderr
    plan = convert(environment, source, target, "--dense", "q5_1", "--dry-run", "--json")
    (file,) = json.loads(plan.stdout)["files"]
    assert file["size_bytes"] == target.stat().st_size
    assert {each["type"] for each in file["tensors"]} == {"F32", "MXFP4", "Q5_1"}
    done = convert(environment, source, target, "--dense", "q4_k_m")
    assert done.returncode == 2
    assert "q4_k_m is not a type for the dense weights" in done.stderr
    assert "gpt-oss's have 2,880" in done.stderr


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("me/r1", "me/r1"),
        ("me/r1@main", "me/r1@main"),
        ("https://huggingface.co/me/r1", "me/r1"),
        ("https://huggingface.co/me/r1/", "me/r1"),
        ("http://www.huggingface.co/me/r1/tree/main", "me/r1@main"),
        ("https://huggingface.co/me/r1/blob/abc/config.json?x=1#top", "me/r1@abc"),
        ("hf.co/me/r1", "me/r1"),
        ("huggingface.co/me/r1.5-x_y", "me/r1.5-x_y"),
        ("hf://me/r1@v2", "me/r1@v2"),
        ("https://example.com/me/r1", None),
        ("./me/r1", None),
        ("me", None),
        ("me/r1/x", None),
        ("", None),
    ],
)
def test_repositories_as_people_name_them(text: str, name: str | None) -> None:
    from gptoss_local.cli._options import repository

    assert repository(text) == name
