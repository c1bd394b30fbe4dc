"""Settings: order of sources, addresses, and clear errors."""

from pathlib import Path

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import explain_settings, load_settings

pytestmark = pytest.mark.quick


def test_order_of_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert load_settings().port == 11434
    config = tmp_path / "gptoss" / "config.toml"
    config.parent.mkdir()
    config.write_text("port = 1\nthreads = 3\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load_settings().port == 1
    monkeypatch.setenv("OLLAMA_HOST", "0.0.0.0:2")
    assert load_settings().port == 2
    monkeypatch.setenv("GPTOSS_PORT", "3")
    settings, sources = explain_settings()
    assert (settings.host, settings.port, settings.threads) == ("0.0.0.0", 3, 3)
    assert sources == {"host": "OLLAMA_HOST", "port": "GPTOSS_PORT", "threads": str(config)}
    settings = load_settings(port=4, host=None)
    assert (settings.port, settings.host, settings.threads) == (4, "0.0.0.0", 3)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost", "localhost", 11434),
        (":8080", "127.0.0.1", 8080),
        ("10.0.0.1:8080", "10.0.0.1", 8080),
        ("http://10.0.0.1:8080/", "10.0.0.1", 8080),
        ("[::1]", "::1", 11434),
        ("[::1]:8080", "::1", 8080),
    ],
)
def test_addresses(monkeypatch: pytest.MonkeyPatch, text: str, host: str, port: int) -> None:
    monkeypatch.setenv("GPTOSS_HOST", text)
    settings = load_settings()
    assert (settings.host, settings.port) == (host, port)


def test_url_is_reachable_for_any_bind_address() -> None:
    assert load_settings(host="0.0.0.0").url == "http://127.0.0.1:11434"
    assert load_settings(host="::1").url == "http://[::1]:11434"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GPTOSS_NUM_PARALLEL", "0"),
        *(("GPTOSS_PORT", value) for value in ("eleven", "70000")),
        ("GPTOSS_THREADS", "-3"),
        ("GPTOSS_CONTEXT_LENGTH", "-4"),
        ("GPTOSS_GPU_LAYERS", "-2"),
        ("GPTOSS_CPU_MOE", "-7"),
        ("GPTOSS_HOST", "host:port"),
        *(("GPTOSS_VRAM", value) for value in ("12 gigs", "12", "9" * 400, "9999999999TiB")),
        *(("GPTOSS_GRACE_S", value) for value in ("-1", "nan", "inf")),
        ("GPTOSS_LOG_FORMAT", "xml"),
        ("GPTOSS_KV_TYPE", "bf16"),
        ("GPTOSS_PRESET", "fast"),
        *(("GPTOSS_API_TOOLS", v) for v in ("websearch", "web_search,mcp:notes", "mcp:*:read")),
        *(("GPTOSS_WORK_FOLDER", value) for value in (".", "src", "~no-such-account/src")),
        ("OLLAMA_HOST", "a/b"),
        ("OLLAMA_KEEP_ALIVE", "soon"),
        ("OLLAMA_MAX_QUEUE", "many"),
        ("OLLAMA_KV_CACHE_TYPE", "q5_1"),
    ],
)
def test_bad_values_name_their_source(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=name):
        load_settings()


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("port = 'x'", "the default is used"),
        ("prot = 1", "Known settings: host, port"),
        ("port =", ""),
        ("log_format = 'xml'", "Use text or json."),
    ],
)
def test_bad_config_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, hint: str
) -> None:
    (tmp_path / "gptoss").mkdir()
    (tmp_path / "gptoss" / "config.toml").write_text(text)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"config\.toml") as raised:
        load_settings()
    assert hint in (raised.value.hint or "")


def test_home_moves_every_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPTOSS_HOME", str(tmp_path))
    settings = load_settings()
    for folder in (settings.models_dir, settings.cache_dir, settings.log_dir):
        assert folder.parent == tmp_path


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("OLLAMA_KEEP_ALIVE", "1h30m", "keep_alive_s", 5400),
        ("OLLAMA_KEEP_ALIVE", "-1", "keep_alive_s", -1),
        ("OLLAMA_CONTEXT_LENGTH", "8192", "context_length", 8192),
        ("OLLAMA_NUM_PARALLEL", "'2'", "num_parallel", 2),
        ("OLLAMA_NUM_PARALLEL", "0", "num_parallel", None),
        ("OLLAMA_MAX_LOADED_MODELS", "0", "max_loaded_models", 3),
        ("OLLAMA_MAX_QUEUE", "7", "max_queue", 7),
        ("OLLAMA_KV_CACHE_TYPE", "Q8_0", "kv_type", "q8_0"),
        ("OLLAMA_ORIGINS", "https://a.example", "origins", "https://a.example"),
    ],
)
def test_variables_of_ollama(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, name: str, value: object
) -> None:
    monkeypatch.setenv(variable, text)
    assert getattr(load_settings(), name) == value
    monkeypatch.setenv("GPTOSS_MAX_QUEUE", "9")
    assert load_settings().max_queue == 9  # ours win
