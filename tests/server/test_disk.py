"""Disks that are full or may not be written: what clients are answered, and what is kept."""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import RunningServer, run_server

MIB = 2**20


@pytest.fixture
def full_home(tmp_path: Path, nano_home: Path) -> Iterator[Path]:
    """A home whose models are on a disk of 1 MiB."""
    models = tmp_path / "home" / "models"
    models.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(models)], check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount")
    shutil.copytree(nano_home / "cache", tmp_path / "home" / "cache")
    yield tmp_path / "home"
    subprocess.run(["umount", "-l", str(models)], check=True)


def client(server: RunningServer) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=60, trust_env=False)


def test_a_full_disk_is_507(full_home: Path) -> None:
    data = b"x" * (2 * MIB)
    blob = f"/api/blobs/sha256:{hashlib.sha256(data).hexdigest()}"
    with run_server(full_home) as server, client(server) as http:
        copied = http.post("/api/copy", json={"source": "nano", "destination": "other"})
        uploaded = http.post(blob, content=data)
        for reply in (copied, uploaded):
            assert reply.status_code == 507
            assert reply.json()["code"] == "DiskFullError"
            assert "No space left" in reply.json()["error"]
            assert "gptoss gc" in reply.json()["hint"]
        created = http.post("/api/create", json={"model": "ada", "from": "nano", "system": "Hi"})
        assert "No space left" in created.text
        assert http.post("/api/show", json={"model": "nano"}).is_success
    assert not list((full_home / "models").rglob("*.gguf"))


def test_a_folder_that_cannot_be_written_is_500(empty_home: Path) -> None:
    (empty_home / "models").write_bytes(b"a file where the folder belongs")
    with run_server(empty_home) as server, client(server) as http:
        reply = http.post("/api/copy", json={"source": "nano", "destination": "other"})
        assert reply.status_code == 500
        assert reply.json()["code"] == "DiskError"


def test_a_model_that_is_deleted_while_it_is_copied_is_404(empty_home: Path) -> None:
    """In any order, and never as a fault of the disk."""
    from concurrent.futures import ThreadPoolExecutor

    with run_server(empty_home) as server, client(server) as http, ThreadPoolExecutor(4) as pool:
        for i in range(30):
            http.post("/api/copy", json={"source": "nano", "destination": "source"})
            body = {"source": "source", "destination": f"copy{i}"}
            copies = [pool.submit(http.post, "/api/copy", json=body) for _ in range(3)]
            pool.submit(http.request, "DELETE", "/api/delete", json={"model": "source"}).result()
            for copy in copies:
                assert copy.result().status_code in (200, 404), copy.result().text
