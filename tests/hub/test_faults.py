"""Faults on the way and in variables: resumed or refused transfers, and messages."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from huggingface_hub import constants

from gptoss_local.base.errors import (
    ConvertError,
    DiskError,
    DiskFullError,
    DownloadError,
    ModelNotFoundError,
)
from gptoss_local.models.hub import client
from tests.hub.conftest import INDEX, REPO, SHARD_BYTES, SHARDS, fetch, repo_files
from tests.hub.server import MEMBER, STRANGER, Fault, HubServer

FIRST = SHARDS[0]


def assert_whole(folder: Path) -> None:
    files = repo_files()
    for name in (*SHARDS, "config.json"):
        assert (folder / name).read_bytes() == files[name], name


# Faults that pass by file, and the bytes of the first shard that are sent.
PASSING: dict[str, tuple[dict[str, tuple[Fault, ...]], int]] = {
    "more cuts than retries": ({FIRST: (Fault(n_times=5, cut_after=300_000),)}, SHARD_BYTES),
    "stalls": ({FIRST: (Fault(n_times=2, stall_after=100_000),)}, SHARD_BYTES),
    "a hub without ranges": (
        {FIRST: (Fault(n_times=1, cut_after=500_000), Fault(ignores_range=True))},
        SHARD_BYTES + 500_000,
    ),
    "a hub without lengths and ranges": (
        {
            FIRST: (
                Fault(n_times=1, cut_after=500_000, has_no_length=True, ignores_range=True),
                Fault(n_times=1, cut_after=800_000, has_no_length=True, ignores_range=True),
                Fault(has_no_length=True, ignores_range=True),
            )
        },
        SHARD_BYTES + 1_300_000,
    ),
    "errors": (
        {
            "": (Fault(n_times=2, status=502),),
            "config.json": (Fault(n_times=1, status=500),),
            FIRST: (Fault(n_times=3, status=503),),
            SHARDS[1]: (Fault(n_times=1, status=429),),
        },
        SHARD_BYTES,
    ),
    "damage": (
        {
            FIRST: (Fault(n_times=1, flip_at=1_234_567),),
            "config.json": (Fault(n_times=1, flip_at=3),),
        },
        2 * SHARD_BYTES,
    ),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", PASSING)
def test_faults_that_pass(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Received bytes are kept; only damaged files are sent twice."""
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.5)
    faults, n_sent = PASSING[name]
    for file, struck in faults.items():
        hub.strike(file, *(Fault(**vars(fault)) for fault in struck))
    fetch(tmp_path)
    assert_whole(tmp_path)
    assert hub.sent[FIRST] == n_sent


@pytest.mark.parametrize(
    "headers",
    [{"RateLimit": '"api";r=0;t=1', "RateLimit-Policy": '"api";q=5;w=300'}, {"Retry-After": "1"}],
)
def test_the_hub_says_how_long_to_wait(
    hub: HubServer, tmp_path: Path, headers: dict[str, str]
) -> None:
    hub.strike(FIRST, Fault(n_times=1, status=429, headers=headers))
    start_s = time.monotonic()
    fetch(tmp_path)
    assert time.monotonic() - start_s >= 1


NO_HUBS = [
    *(b"<html>", b"[]", b"{}", b'{"id": "a", "siblings": [{}]}', b"[" * 100_000),
    b'{"id": "a", "sha": 1, "siblings": []}',
    b'{"id": "a", "sha": "c", "siblings": [{"rfilename": "x", "size": "1", "blobId": "%040d"}]}'
    % 0,
]
WAITS = {"864000": "asks to wait 240 hours", "9" * 400: "", "\xb2": ""}
# A file ("" is the list), its fault, our message, and words of the hint.
STAYING: list[tuple[str, Fault, str, str]] = [
    ("", Fault(status=503), "503 Service Unavailable", ""),
    (FIRST, Fault(status=503), "503 Service Unavailable", ""),
    (FIRST, Fault(flip_at=0), f"{FIRST} .* damaged twice", ""),
    (FIRST, Fault(status=302, headers={"Location": "?again"}), "redirects", ""),
    *((FIRST, Fault(status=302, headers={"Location": address}), "address that cannot be used", "")
      for address in ("file:///etc/passwd", "ftp://x/y")),
    *((FIRST, Fault(replaced_by=bytes(n)), f"{n} bytes where its list says {SHARD_BYTES}", "")
      for n in (SHARD_BYTES - 1, SHARD_BYTES + 1)),
    *((struck, Fault(status=429, headers={"Retry-After": wait}), "429 Too Many Requests", hint)
      for struck in ("", FIRST) for wait, hint in WAITS.items()),
    *(("", Fault(replaced_by=answer), "does not answer like a Hugging Face hub", "")
      for answer in NO_HUBS),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(STAYING)))
def test_faults_that_stay_are_told(hub: HubServer, tmp_path: Path, number: int) -> None:
    struck, fault, message, hint = STAYING[number]
    hub.strike(struck, fault)
    with pytest.raises(DownloadError, match=message) as caught:
        fetch(tmp_path)
    assert ("asks to wait" in caught.value.hint) == bool(hint)
    assert hint in caught.value.hint
    assert not (tmp_path / FIRST).exists()
    n_asked = sum(
        request.path.startswith("/cdn/" if struck else "/api/models/") and struck in request.path
        for request in hub.requests
    )
    assert not caught.value.message.endswith("..")
    if "cannot be used" in message:
        assert n_asked == 1
    if fault.status == 503:
        assert n_asked == 1 + len(client.RETRY_WAITS_S)
    assert n_asked < 30


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


@pytest.mark.parametrize(("status", "hint"), [(402, "quota"), (451, "another mirror")])
def test_a_refusal_says_what_helps(hub: HubServer, tmp_path: Path, status: int, hint: str) -> None:
    hub.strike(FIRST, Fault(status=status))
    with pytest.raises(DownloadError, match=str(status)) as raised:
        fetch(tmp_path)
    assert hint in raised.value.hint
    assert "Try again" not in raised.value.hint


@pytest.mark.quick
def test_an_endpoint_of_no_text_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", " "):  # as docker compose passes on a variable that is not set
        monkeypatch.setenv("HF_ENDPOINT", text)
        assert client.HubClient().endpoint == constants.ENDPOINT


@pytest.mark.quick
def test_a_listing_cannot_lead_out_of_the_folder(hub: HubServer, tmp_path: Path) -> None:
    for shard in ("../escaped.safetensors", "/tmp/escaped.safetensors", "..", "absent.safetensors"):
        index = json.dumps({"weight_map": {"layer.0": shard}}).encode()
        files = {"config.json": b"{}", INDEX: index, shard: b"weights"}
        files.pop("absent.safetensors", None)
        hub.add(REPO, files)
        with pytest.raises((ConvertError, DownloadError), match="names the shard"):
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
    hub.strike(FIRST, Fault(n_times=1, cut_after=0), Fault(cut_after=0))
    with pytest.raises(DownloadError):
        fetch(tmp_path)
    (partial,) = tmp_path.rglob(f"{FIRST}*.incomplete")
    partial.unlink()
    partial.symlink_to("/dev/full")  # every write fails as on a full disk
    hub.heal()
    with pytest.raises(DiskFullError, match="No space left") as raised:
        fetch(tmp_path)
    assert "what has arrived is kept" in raised.value.hint
    assert not (tmp_path / FIRST).exists()
    partial.unlink()
    fetch(tmp_path)
    assert_whole(tmp_path)


@pytest.mark.parametrize("name", ["state.json", "lock"])
def test_files_of_its_own_that_it_may_not_use(hub: HubServer, tmp_path: Path, name: str) -> None:
    """As those of another account: here a folder, which root may not read either."""
    (tmp_path / ".gptoss-download" / name).mkdir(parents=True)
    with pytest.raises(DiskError, match="cannot be written") as raised:
        fetch(tmp_path)
    assert "where you may write" in raised.value.hint


COMMAND = [sys.executable, "-m", "gptoss_local", "pull", "gpt-oss:20b", "--dry-run"]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("HF_HUB_DOWNLOAD_TIMEOUT", "ten", "A variable of the hub is wrong: invalid literal"),
        ("HF_ENDPOINT", "http://[hub", "A variable of the hub is wrong: Invalid IPv6 URL"),
        ("HF_ENDPOINT", "hub.example", "'hub.example' is not the address of a hub"),
        ("HF_TOKEN", "hf_tökén", "The token for the hub holds characters"),
        ("HTTPS_PROXY", "htp://proxy:1", "The proxy or the certificates"),
        ("HTTPS_PROXY", "http://proxy:port", "The proxy or the certificates"),
        ("SSL_CERT_FILE", "/nonexistent", "The proxy or the certificates"),
    ],
)
def test_misspelt_variables_are_named(name: str, value: str, told: str) -> None:
    environment = {"HF_ENDPOINT": "http://127.0.0.1:9"} | os.environ | {name: value}
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stderr.startswith(f"gptoss: {told}")
    assert (done.returncode, done.stderr.count("\n")) == (2, 2)
