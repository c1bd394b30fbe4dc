"""Any gpt-oss of the hub comes here by the name that it has there."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from convert import convert_checkpoint
from gptoss_local.base.errors import DownloadError, GptOssError, ModelNotFoundError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.models.pulling.pull import pulled_model
from gptoss_local.models.store import find_model
from tests.cli.conftest import fresh, run_cli  # noqa: F401
from tests.convert.tiny import write_tiny
from tests.hub.conftest import no_account, short_waits  # noqa: F401
from tests.hub.server import HubServer, run_hub
from tests.pulling.test_pull import read_folder

TUNE, GGUFS = "Someone/GPT-oss-Tune", "quantizer/GPT-oss-20b-GGUF"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    source = write_tiny(tmp_path / "tune")
    (one,) = convert_checkpoint(source, tmp_path / "m.gguf")
    parts = convert_checkpoint(source, tmp_path / "m.gguf", max_shard_bytes=20_000)
    split = {f"BF16/M-BF16{part.name[1:]}": part.read_bytes() for part in parts}
    with run_hub() as server:
        server.add(TUNE, read_folder(source))
        server.add(GGUFS, {"M-Q8_0.gguf": one.read_bytes(), "README.md": b"", **split})
        server.add("quantizer/One-GGUF", {"M.gguf": one.read_bytes()})
        server.add("quantizer/Other-GGUF", {"M.gguf": one.read_bytes()}, architecture="llama")
        server.add("someone/lora", {"adapter_config.json": b"{}", "adapter_model.safetensors": b""})
        server.add("someone/secret", {"M.gguf": one.read_bytes()}, gated=True)
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def test_a_checkpoint_and_a_gguf(
    hub: HubServer,
    fresh: dict[str, str],  # noqa: F811
) -> None:
    environment = fresh | {"HF_ENDPOINT": hub.endpoint}
    for name in (TUNE, f"{GGUFS}:BF16", "quantizer/One-GGUF"):
        done = run_cli(environment, "pull", name)
        assert done.returncode == 0, done.stderr
        assert f"{name} is ready: gptoss run {name}" in done.stderr
    settings = Settings(home=Path(fresh["GPTOSS_HOME"]))
    assert len(find_model(f"{GGUFS}:BF16", settings).files) > 1
    n_requests = len(hub.requests)
    for arguments in (("pull", TUNE), ("pull", TUNE, "--dry-run")):
        done = run_cli(environment, *arguments)
        assert "is on this machine already" in done.stderr
    assert len(hub.requests) == n_requests, "the hub is not asked for models that are here"
    assert run_cli(environment, "rm", "-y", f"https://huggingface.co/{TUNE}").returncode == 0
    shown = run_cli(environment, "show", TUNE)
    assert f"Fetch it: gptoss pull {TUNE}" in shown.stderr
    gated = run_cli(environment, "pull", "someone/secret:M")
    assert gated.returncode != 0
    assert "is gated" in gated.stderr
    assert f"Accept it at {hub.endpoint}/someone/secret" in gated.stderr

    run_cli(environment, "cp", "nano", "other")  # starts a server
    url = f"http://127.0.0.1:{fresh['GPTOSS_PORT']}"
    with httpx.Client(base_url=url, trust_env=False, timeout=None) as http:
        lines = http.post("/api/pull", json={"model": f"hf.co/{GGUFS}:Q8_0"}).text.splitlines()
        assert json.loads(lines[-1]) == {"status": "success"}, lines
        missing = http.post("/api/pull", json={"model": "quantizer/none", "stream": False})
        assert "has no repository quantizer/none" in missing.text
        names = {model["name"] for model in http.get("/api/tags").json()["models"]}
    assert names == {
        *("nano", "other", "quantizer/one-gguf"),
        *("quantizer/gpt-oss-20b-gguf:q8_0", "quantizer/gpt-oss-20b-gguf:bf16"),
    }


REFUSED: dict[str, tuple[type[GptOssError], str, str]] = {
    GGUFS: (UsageError, "has 2 GGUFs to choose from", "There: BF16/M-BF16-00001-of-"),
    f"{GGUFS}:Q4_K_M": (UsageError, "has 0 GGUFs with Q4_K_M", "M-Q8_0.gguf"),
    "quantizer/Other-GGUF": (DownloadError, "is a model of llama", ""),
    "someone/lora": (GptOssError, "is an adapter", "--adapter DIR"),
    "quantizer/none": (ModelNotFoundError, "has no repository", "Check the name"),
    "gpt-oss:21b": (ModelNotFoundError, "the catalogue does not know", "Did you mean"),
    "mine": (ModelNotFoundError, "the catalogue does not know", "OWNER/NAME"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_of_names(hub: HubServer, name: str) -> None:
    kind, message, hint = REFUSED[name]
    with pytest.raises(kind, match=message) as caught:
        pulled_model(name)
    assert hint in caught.value.hint
