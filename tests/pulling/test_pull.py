"""Checkpoints and GGUFs come to this machine from a local hub, or from a cache of it."""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from convert import convert_checkpoint
from convert.verify import verify_model
from gptoss_local.base.errors import DownloadError
from gptoss_local.base.settings import Settings
from gptoss_local.models.catalog import CatalogModel, Checkpoint, PublishedGGUF
from gptoss_local.models.hub import folder as hub_folder
from gptoss_local.models.pulling.pull import preview_pull, pull_checkpoint, pull_model
from gptoss_local.models.store import (
    delete_model,
    find_garbage,
    find_model,
    known_sha256,
    list_models,
)
from tests.conftest import wait_until
from tests.convert.tiny import tiny_config, write_tiny
from tests.hub.conftest import no_account, short_waits  # noqa: F401
from tests.hub.server import Fault, HubServer, run_hub
from tests.store.test_elsewhere import cached, snapshot

REPO, GGUF_REPO = "openai/gpt-oss-20b", "ggml-org/gpt-oss-20b-GGUF"
CONFIG = tiny_config(hidden_size=512, intermediate_size=256, num_hidden_layers=2)
N_SHARDS = 3
LAST = f"model-{N_SHARDS:05d}-of-{N_SHARDS:05d}.safetensors"


def ignore(what: str, done: int, total: int) -> None:
    pass


def read_folder(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "gpt-oss-20b", config=CONFIG, n_shards=N_SHARDS)


@pytest.fixture
def published(source: Path, tmp_path: Path) -> list[Path]:
    """The model as a GGUF in several files."""
    folder = tmp_path / "published"
    folder.mkdir()
    return convert_checkpoint(source, folder / "m.gguf", max_shard_bytes=2_000_000)


@pytest.fixture
def hub(
    source: Path, published: list[Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[HubServer]:
    with run_hub() as server:
        server.add(REPO, read_folder(source))
        server.add(GGUF_REPO, {path.name: path.read_bytes() for path in published})
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


@pytest.fixture
def model(source: Path, published: list[Path]) -> CatalogModel:
    size_bytes = sum(path.stat().st_size for path in source.iterdir())
    return CatalogModel(
        name="gpt-oss:20b",
        file="gpt-oss-20b.gguf",
        checkpoint=Checkpoint(REPO, size_bytes),
        gguf=PublishedGGUF(GGUF_REPO, tuple(path.name for path in published)),
    )


def left_in(settings: Settings) -> set[str]:
    return {path.name for path in settings.models_dir.rglob("*") if path.is_file()}


def test_a_checkpoint_is_converted_while_it_arrives(
    hub: HubServer, source: Path, tmp_path: Path
) -> None:
    """In both layouts there are the bytes of a local conversion, and nothing else is left."""
    expected = convert_checkpoint(source, tmp_path / "expected.gguf")[0].read_bytes()
    target = tmp_path / "out" / "m.gguf"
    target.parent.mkdir()
    steps: dict[str, list[int]] = {}
    pull_checkpoint(
        REPO, target, progress=lambda what, done, total: steps.setdefault(what, []).append(done)
    )
    assert target.read_bytes() == expected
    assert list(target.parent.iterdir()) == [target]
    assert set(steps) == {"fetching config and tokenizer", "downloading", "convert"}
    assert all(done == sorted(done) for done in steps.values())
    original = write_tiny(tmp_path / "o", config=CONFIG, layout="original")
    files = {f"original/{name}": data for name, data in read_folder(original).items()}
    root = {name: data for name, data in read_folder(source).items() if "safetensors" not in name}
    hub.add(REPO, root | files)  # the tokenizer lies at the root
    pull_checkpoint(REPO, target, original=True, progress=ignore)
    assert target.read_bytes() == expected


def test_one_figure_from_the_first_byte_to_the_last(
    hub: HubServer, model: CatalogModel, settings: Settings, source: Path
) -> None:
    reports: list[tuple[str, int, int]] = []
    pull_model(model, settings, progress=lambda *report: reports.append(report))
    assert {what for what, _, _ in reports} == {"pull"}
    done = [n for _, n, _ in reports]
    assert done == sorted(done)
    assert reports[0][1] < reports[0][2]
    totals = {total for _, _, total in reports}
    assert max(totals) < 1.3 * min(totals)  # known from the start, but for a rounding
    _, n_done, n_total = reports[-1]
    fetched = sum(hub.sent.values())
    assert n_done == n_total
    assert fetched < n_total < fetched + find_model("20b", settings).size_bytes
    assert left_in(settings) == {"gpt-oss-20b.gguf"}


def test_a_published_gguf_is_taken_as_it_is(
    hub: HubServer, model: CatalogModel, settings: Settings, published: list[Path]
) -> None:
    hub.strike(published[1].name, Fault(n_times=1, flip_at=100), Fault(n_times=2, cut_after=9_000))
    reports: list[tuple[str, int, int]] = []
    pull_model(model, settings, gguf=True, progress=lambda *report: reports.append(report))
    entry = find_model("gpt-oss:20b", settings)
    assert [path.read_bytes() for path in entry.files] == [p.read_bytes() for p in published]
    for path in entry.files:
        assert known_sha256(path, settings) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert reports[-1] == ("pull", entry.size_bytes, entry.size_bytes)
    assert find_garbage(settings, quiet_s=-1) == []
    delete_model("20b", settings)
    assert left_in(settings) == set()


def test_hugging_faces_cache_is_used_and_stays(
    hub: HubServer,
    model: CatalogModel,
    settings: Settings,
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cached(tmp_path / "cache", REPO, source)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    before = snapshot(tmp_path / "cache")
    assert preview_pull(model, settings).source == "cache"
    pull_model(model, settings, progress=ignore)
    assert find_model("20b", settings).path is not None
    assert hub.requests == []
    assert snapshot(tmp_path / "cache") == before


@pytest.mark.parametrize("gguf", [False, True])
def test_a_preview_writes_nothing_and_is_right(
    hub: HubServer, model: CatalogModel, settings: Settings, gguf: bool
) -> None:
    preview = preview_pull(model, settings, gguf=gguf)
    assert not settings.models_dir.exists()
    assert not hub.sent
    assert sum(preview.files.values()) == preview.download_bytes
    assert (preview.held_bytes, len(preview.commit)) == (0, 40)
    assert preview.needed_bytes >= preview.download_bytes
    assert model.gguf is not None
    hub.strike(model.gguf.files[-1] if gguf else LAST, Fault(status=503))
    with pytest.raises(DownloadError):
        pull_model(model, settings, gguf=gguf, progress=ignore)
    held_bytes = preview_pull(model, settings, gguf=gguf).held_bytes
    assert 0 < held_bytes < preview.download_bytes
    hub.heal()
    hub.sent.clear()
    pull_model(model, settings, gguf=gguf, progress=ignore)
    assert sum(hub.sent.values()) == preview.download_bytes - held_bytes


@pytest.mark.parametrize(("gguf", "has_room_for"), [(True, 0.9), (False, 0.9), (False, 1.1)])
def test_too_small_a_disk_is_told_before_the_first_byte(
    hub: HubServer,
    model: CatalogModel,
    settings: Settings,
    gguf: bool,
    has_room_for: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A checkpoint needs more than it has bytes: shards that are being converted lie there, too."""
    n_bytes = int(has_room_for * preview_pull(model, settings, gguf=gguf).download_bytes)
    usage = shutil.disk_usage(settings.home.parent if settings.home else Path())
    monkeypatch.setattr(hub_folder.shutil, "disk_usage", lambda _: usage._replace(free=n_bytes))
    with pytest.raises(DownloadError, match=r"[kM]B free; [0-9.]+ [kM]B are needed"):
        pull_model(model, settings, gguf=gguf, progress=ignore)
    assert not hub.sent


PULL = """
import sys
from pathlib import Path
import msgspec
from gptoss_local.models.catalog import CatalogModel
from gptoss_local.base.errors import GptOssError
from gptoss_local.models.hub import client
from gptoss_local.models.pulling.pull import pull_checkpoint, pull_model
from gptoss_local.base.settings import Settings

client.RETRY_WAITS_S = (0.01, 0.01)
model = msgspec.json.decode(sys.argv[1], type=CatalogModel)
try:
    pull_model(
        model,
        Settings(home=Path(sys.argv[2])),
        gguf=sys.argv[3] == "gguf",
        progress=lambda what, done, total: print(done, total, flush=True),
    )
except GptOssError as error:
    sys.exit(f"{type(error).__name__}: {error.message}")
"""


def pull_command(model: CatalogModel, settings: Settings, what: str) -> list[str]:
    encoded = msgspec.json.encode(model).decode()
    return [sys.executable, "-c", PULL, encoded, str(settings.home), what]


@pytest.mark.parametrize("what", ["gguf", "checkpoint"])
def test_killed_again_and_again_it_comes_to_its_end(
    hub: HubServer, model: CatalogModel, settings: Settings, what: str
) -> None:
    """At any time there is no model or the whole one."""
    assert model.gguf is not None
    name = model.gguf.files[-1] if what == "gguf" else LAST
    command = pull_command(model, settings, what)
    hub.strike(name, Fault(stall_after=20_000))
    for n_before in range(0, 60_000, 20_000):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            wait_until(lambda n=n_before: hub.sent[name] > n)
            process.kill()
        assert [entry for entry in list_models(settings) if not entry.embedded] == []
    hub.heal()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    path = find_model("20b", settings).path
    assert path is not None
    assert not any("checksum" in each.message for each in verify_model(path).findings)
    assert find_garbage(settings, quiet_s=-1) == []


@pytest.mark.parametrize(
    ("what", "name"),
    [("gguf", "m-00001-of-00002.gguf"), ("checkpoint", LAST), ("checkpoint", "config.json")],
)
def test_a_pull_that_waits_for_the_hub_is_not_garbage(
    hub: HubServer, model: CatalogModel, settings: Settings, what: str, name: str
) -> None:
    """Hours may pass, as on a laptop that slept; a pull that was killed is garbage at once."""
    hub.strike(name, Fault(n_times=1, stall_after=100))
    process = subprocess.Popen(
        pull_command(model, settings, what), stdout=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: hub.sent[name])
        for path in settings.models_dir.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # it writes others meanwhile
                os.utime(path, (0, 0))
        assert find_garbage(settings) == []
    finally:
        process.kill()
        process.communicate()
    found = find_garbage(settings)
    assert {each.kind for each in found} == {"interrupted"}
    for each in found:
        each.remove()
    assert left_in(settings) == set()


@pytest.mark.parametrize("what", ["gguf", "checkpoint"])
def test_a_disk_that_fills_up(
    hub: HubServer, model: CatalogModel, settings: Settings, what: str, tmp_path: Path
) -> None:
    """A small file system of its own; the space check is off, as another program takes the rest."""
    home = settings.home
    assert home is not None
    home.mkdir()
    lines = f"""
    mount -t tmpfs -o size=1500k none {home} || exit 99
    {sys.executable} -c "$PULL" "$MODEL" {home} {what}
    code=$?
    find {home}/models -maxdepth 1 -name '*.gguf' | sed 's/^/FOUND /'
    mount -o remount,size=20m {home}
    {sys.executable} -c "$PULL" "$MODEL" {home} {what} || exit 98
    cp -a {home}/models {tmp_path}/kept
    exit $code
    """
    off = "import gptoss_local.models.hub.folder as f\n"
    off += "f.DownloadFolder.check_space = lambda *_: None\n"
    off += "import convert.run\nconvert.run.ConversionRun._check_space = lambda *_: None\n"
    encoded = pull_command(model, settings, what)[3]
    environment = os.environ | {"PULL": off + PULL, "MODEL": encoded}
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", lines], env=environment, capture_output=True, text=True
    )
    if done.returncode == 99 or "unshare:" in done.stderr:
        pytest.skip("needs the right to mount")
    assert done.returncode == 1, done.stderr
    assert "disk is full" in done.stderr or "No space left" in done.stderr, done.stderr
    assert "FOUND" not in done.stdout  # no half model under a name
    kept = {path.suffix for path in (tmp_path / "kept").rglob("*") if path.is_file()}
    assert ".gguf" in kept
    assert not kept & {".incomplete", ".partial", ".journal", ".part"}
