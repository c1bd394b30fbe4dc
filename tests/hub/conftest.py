"""A local hub with one small repository in both layouts, and nothing of the developer's account."""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from gptoss_local.models.hub import client, open_checkpoint
from tests.hub.server import HubServer, run_hub

REPO = "openai/gpt-oss-tiny"
N_SHARDS = 3
SHARD_BYTES = 2_000_003
SHARDS = [f"model-{i:05}-of-{N_SHARDS:05}.safetensors" for i in range(N_SHARDS)]
INDEX = "model.safetensors.index.json"


def repo_files(seed: int = 0) -> dict[str, bytes]:
    """The repository's files: both layouts, and files that no conversion needs."""
    noise = random.Random(seed)
    weight_map = {f"layer.{i}": shard for i, shard in enumerate(SHARDS)}
    return {
        "README.md": b"---\nlicense: apache-2.0\n---\n",
        "config.json": b'{"model_type": "gpt_oss"}',
        "generation_config.json": b"{}",
        "tokenizer.json": noise.randbytes(50_000),
        INDEX: json.dumps({"weight_map": weight_map}).encode(),
        **{shard: noise.randbytes(SHARD_BYTES) for shard in SHARDS},
        "original/config.json": b'{"num_hidden_layers": 1}',
        "original/model.safetensors": noise.randbytes(SHARD_BYTES),
        "metal/model.bin": b"for another program",
    }


def fetch(folder: Path, *, source: str = REPO, **options: Any) -> list[str]:
    """Download a checkpoint; the names of its shards in the order in which they came."""
    opening = {k: options.pop(k) for k in ("original", "endpoint", "token") if k in options}
    with open_checkpoint(source, folder, **opening) as checkpoint:
        checkpoint.fetch_small_files()
        return [path.name for path in checkpoint.iter_shards(**options)]


@pytest.fixture(autouse=True)
def no_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("HF_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no_token"))
    monkeypatch.setenv("HF_HUB_CACHE", "/nonexistent")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_WAITS_S", (0.01, 0.01, 0.01))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """The mirror that HF_ENDPOINT names."""
    with run_hub() as server:
        server.add(REPO, repo_files())
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server
