"""Misspelt variables of huggingface_hub and of the network: each mistake is named."""

import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "gptoss_local", "pull", "gpt-oss:20b", "--dry-run"]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("HF_HUB_DOWNLOAD_TIMEOUT", "ten", "HF_HUB_DOWNLOAD_TIMEOUT is 'ten'"),
        ("HF_HUB_ETAG_TIMEOUT", "", "HF_HUB_ETAG_TIMEOUT is ''"),
        ("HF_ENDPOINT", "http://[hub", "'http://[hub' is not the address of a hub"),
        ("HF_ENDPOINT", "http://hub:port", "'http://hub:port' is not the address of a hub"),
        ("HF_TOKEN", "hf_tökén", "The token for the hub holds characters"),
        ("HTTPS_PROXY", "htp://proxy:1", "The proxy or the certificates"),
        ("HTTPS_PROXY", "http://proxy:port", "The proxy or the certificates"),
        ("SSL_CERT_FILE", "/nonexistent", "The proxy or the certificates"),
    ],
)
def test_a_mistake_is_named(name: str, value: str, told: str) -> None:
    environment = {"HF_ENDPOINT": "http://127.0.0.1:9"} | os.environ | {name: value}
    done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stderr.startswith(f"gptoss: {told}")
    assert (done.returncode, done.stderr.count("\n")) == (2, 2)
