"""Faults on the way: resumed or refused transfers, and the messages for the user."""

import json
import socket
import time
from pathlib import Path

import pytest
from huggingface_hub import constants

from gptoss_local.base.errors import (
    DiskFullError,
    DownloadError,
    ModelNotFoundError,
)
from gptoss_local.models.hub import client
from tests.hub.conftest import INDEX, REPO, SHARD_BYTES, SHARDS, fetch, repo_files
from tests.hub.server import MEMBER, STRANGER, Fault, HubServer


def assert_whole(folder: Path) -> None:
    for shard in SHARDS:
        assert (folder / shard).read_bytes() == repo_files()[shard]


@pytest.mark.quick
def test_a_cut_connection_is_resumed_and_not_started_over(hub: HubServer, tmp_path: Path) -> None:
    hub.strike(SHARDS[0], Fault(n_times=5, cut_after=300_000))  # more cuts than retries
    fetch(tmp_path)
    assert_whole(tmp_path)
    assert hub.sent[SHARDS[0]] == SHARD_BYTES
    starts = [request.range for request in hub.requests if request.path.startswith("/cdn/")]
    assert "bytes=1500000-" in starts


def test_a_stalled_transfer_is_not_taken_for_the_end(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.5)
    hub.strike(SHARDS[0], Fault(n_times=2, stall_after=100_000))
    fetch(tmp_path)
    assert_whole(tmp_path)
    assert hub.sent[SHARDS[0]] == SHARD_BYTES


def test_server_errors_are_retried(hub: HubServer, tmp_path: Path) -> None:
    hub.strike("", Fault(n_times=2, status=502))
    hub.strike("config.json", Fault(n_times=1, status=500))
    hub.strike(SHARDS[0], Fault(n_times=3, status=503))
    hub.strike(SHARDS[1], Fault(n_times=1, status=429))
    fetch(tmp_path)
    assert_whole(tmp_path)


@pytest.mark.parametrize(
    "headers",
    [{"RateLimit": '"api";r=0;t=1', "RateLimit-Policy": '"api";q=5;w=300'}, {"Retry-After": "1"}],
)
def test_the_hub_says_how_long_to_wait(
    hub: HubServer, tmp_path: Path, headers: dict[str, str]
) -> None:
    hub.strike(SHARDS[0], Fault(n_times=1, status=429, headers=headers))
    start_s = time.monotonic()
    fetch(tmp_path)
    assert time.monotonic() - start_s >= 1


@pytest.mark.parametrize("struck", ["", SHARDS[0]])
@pytest.mark.parametrize("wait", ["864000", "9" * 400, "\xb2"])
def test_a_hub_that_asks_for_days_is_not_waited_for(
    hub: HubServer, tmp_path: Path, wait: str, struck: str
) -> None:
    hub.strike(struck, Fault(status=429, headers={"Retry-After": wait}))
    with pytest.raises(DownloadError, match="429 Too Many Requests") as caught:
        fetch(tmp_path)
    assert ("asks to wait 14,400 minutes" in caught.value.hint) == (wait == "864000")


@pytest.mark.parametrize(("struck", "asked"), [("", "/api/models/"), (SHARDS[0], "/cdn/")])
def test_server_errors_that_stay_are_told(
    hub: HubServer, tmp_path: Path, struck: str, asked: str
) -> None:
    hub.strike(struck, Fault(status=503))
    with pytest.raises(DownloadError, match="503 Service Unavailable"):
        fetch(tmp_path)
    n_asked = sum(
        request.path.startswith(asked) and struck in request.path for request in hub.requests
    )
    assert n_asked == 1 + len(client.RETRY_WAITS_S)


@pytest.mark.quick
def test_damage_on_the_way_is_found_and_fetched_once_more(hub: HubServer, tmp_path: Path) -> None:
    hub.strike(SHARDS[0], Fault(n_times=1, flip_at=1_234_567))
    hub.strike("config.json", Fault(n_times=1, flip_at=3))
    fetch(tmp_path)
    assert_whole(tmp_path)
    assert (tmp_path / "config.json").read_bytes() == repo_files()["config.json"]


def test_damage_that_stays_is_named(hub: HubServer, tmp_path: Path) -> None:
    hub.strike(SHARDS[1], Fault(flip_at=0))
    with pytest.raises(DownloadError, match=f"{SHARDS[1]} .* damaged twice"):
        fetch(tmp_path)
    assert not (tmp_path / SHARDS[1]).exists()
    assert hub.sent[SHARDS[1]] == 2 * SHARD_BYTES
    hub.heal()
    fetch(tmp_path)
    assert_whole(tmp_path)


@pytest.mark.parametrize("n_bytes", [SHARD_BYTES - 1, SHARD_BYTES + 1])
def test_a_file_of_another_length_is_refused(hub: HubServer, tmp_path: Path, n_bytes: int) -> None:
    hub.strike(SHARDS[0], Fault(replaced_by=bytes(n_bytes)))
    with pytest.raises(DownloadError, match=f"{n_bytes} bytes where its list says {SHARD_BYTES}"):
        fetch(tmp_path)
    assert not (tmp_path / SHARDS[0]).exists()


def test_no_such_repository(hub: HubServer, tmp_path: Path) -> None:
    for token in (False, STRANGER):  # the hub says 401 to the one, 404 to the other
        with pytest.raises(ModelNotFoundError, match="no repository openai/gpt-oss-2b") as raised:
            fetch(tmp_path, source="openai/gpt-oss-2b", token=token)
        assert "Check the name" in raised.value.hint


@pytest.mark.quick
def test_a_gated_repository(hub: HubServer, tmp_path: Path) -> None:
    hub.repos[REPO].gated = True
    for token in (False, STRANGER):
        with pytest.raises(DownloadError, match="is gated") as raised:
            fetch(tmp_path, token=token)
        assert f"{hub.endpoint}/{REPO}" in raised.value.hint
        assert "`hf auth login` or set HF_TOKEN" in raised.value.hint
    fetch(tmp_path, token=MEMBER)
    assert_whole(tmp_path)


def test_nobody_answers(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(DownloadError, match=f"{endpoint} cannot be reached") as raised:
            fetch(tmp_path, endpoint=endpoint)
    assert "Check the network" in raised.value.hint


@pytest.mark.parametrize(
    "answer",
    [
        *(b"<html>", b"[]", b"{}", b'{"id": "a", "siblings": [{}]}', b"[" * 100_000),
        b'{"id": "a", "sha": 1, "siblings": []}',
        b'{"id": "a", "sha": "c", "siblings": [{"rfilename": "x", "size": "1", "blobId": "%040d"}]}'
        % 0,
    ],
)
def test_what_is_no_hub_is_said_to_be_none(hub: HubServer, tmp_path: Path, answer: bytes) -> None:
    hub.strike("", Fault(replaced_by=answer))
    with pytest.raises(DownloadError, match="does not answer like a Hugging Face hub"):
        fetch(tmp_path)


@pytest.mark.quick
def test_a_listing_cannot_lead_out_of_the_folder(hub: HubServer, tmp_path: Path) -> None:
    for shard in ("../escaped.safetensors", "/tmp/escaped.safetensors", "..", "absent.safetensors"):
        index = json.dumps({"weight_map": {"layer.0": shard}}).encode()
        files = {"config.json": b"{}", INDEX: index, shard: b"weights"}
        files.pop("absent.safetensors", None)
        hub.add(REPO, files)
        with pytest.raises(DownloadError, match="names the shard"):
            fetch(tmp_path / "inner")
    assert not list(tmp_path.rglob("escaped*"))


def test_too_little_space_is_said_before_the_first_shard(hub: HubServer, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"B free; 1\.0 PB are needed"):
        fetch(tmp_path, extra_bytes=10**15)
    assert not any(hub.sent[shard] for shard in SHARDS)
    fetch(tmp_path)
    fetch(tmp_path, extra_bytes=10**15)  # nothing is left to fetch: the caller's own matter


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
def test_a_full_disk(hub: HubServer, tmp_path: Path) -> None:
    hub.strike(SHARDS[0], Fault(n_times=1, cut_after=0), Fault(cut_after=0))
    with pytest.raises(DownloadError):
        fetch(tmp_path)
    (partial,) = tmp_path.rglob(f"{SHARDS[0]}*.incomplete")
    partial.unlink()
    partial.symlink_to("/dev/full")  # every write fails as on a full disk
    hub.heal()
    with pytest.raises(DiskFullError, match="No space left") as raised:
        fetch(tmp_path)
    assert "what has arrived is kept" in raised.value.hint
    assert not (tmp_path / SHARDS[0]).exists()
    partial.unlink()
    fetch(tmp_path)
    assert_whole(tmp_path)


def test_a_server_without_ranges_starts_over(hub: HubServer, tmp_path: Path) -> None:
    cut = Fault(n_times=1, cut_after=500_000)
    hub.strike(SHARDS[0], cut, Fault(ignores_range=True))
    fetch(tmp_path)
    assert_whole(tmp_path)
    assert hub.sent[SHARDS[0]] == 500_000 + SHARD_BYTES


def test_a_loop_of_redirects_is_not_tried_again(hub: HubServer, tmp_path: Path) -> None:
    hub.strike(SHARDS[0], Fault(status=302, headers={"Location": "?again"}))
    with pytest.raises(DownloadError, match="redirects"):
        fetch(tmp_path)
    n_asked = sum(SHARDS[0] in request.path for request in hub.requests)
    assert n_asked < 30
