"""The metrics of a real server, and a dashboard that asks for no others."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gptoss_local.server.keys import add_key
from tests.conftest import RunningServer, run_server, wait_until
from tests.docs.pages import ROOT
from tests.server.dialects import user

DASHBOARD = json.loads((ROOT / "docs" / "grafana.json").read_text(encoding="utf-8"))
HISTOGRAMS = (
    *("time_to_first_token_seconds", "time_per_output_token_seconds", "queue_seconds"),
    *("prompt_tokens", "cached_tokens", "generated_tokens"),
)
ASK = {"model": "nano", "messages": [user("Count from 1 to 900.")], "max_tokens": 40}

Samples = dict[tuple[str, str], float]


def samples(http: httpx.Client) -> Samples:
    """All values by name and, of histograms, upper bound."""
    families = text_string_to_metric_families(http.get("/metrics").text)
    found = (sample for family in families for sample in family.samples)
    return {(s.name, s.labels.get("le", "")): s.value for s in found}


@pytest.fixture
def server(nano_home: Path, tmp_path: Path) -> Iterator[RunningServer]:
    add_key(tmp_path / "keys.toml", "ada")
    with run_server(nano_home, api_keys_file=str(tmp_path / "keys.toml")) as server:
        yield server


@pytest.fixture
def http(server: RunningServer, tmp_path: Path) -> Iterator[httpx.Client]:
    """A user with a key."""
    key = {"x-api-key": add_key(tmp_path / "keys.toml", "bob")}
    with httpx.Client(base_url=server.url, headers=key, timeout=300, trust_env=False) as http:
        yield http


def test_health_metrics_and_the_dashboard(server: RunningServer, http: httpx.Client) -> None:
    assert http.get("/health").json() == {"status": "ok"}
    told: list[dict[str, Any]] = []
    for _ in range(2):  # the second has its prompt cached
        told.append(http.post("/v1/chat/completions", json=ASK).json()["usage"])
    found = samples(http)
    text = http.get("/metrics").text
    for line in (
        'gptoss_answers_total{end="length"} 2',
        'gptoss_tokens_total{kind="generated"} 80',
        f'gptoss_tokens_total{{kind="prompt"}} {sum(usage["prompt_tokens"] for usage in told)}',
        'gptoss_model_loaded{model="nano"} 1',
        'gptoss_engine_sequences_running{model="nano"} 0',
    ):
        assert f"\n{line}.0\n" in text, line
    names = set(re.findall(r"^([a-z_]+)[ {]", text, re.M))
    described = set(re.findall(r"^# TYPE (\w+) (?:gauge|counter)$", text, re.M))
    for name in re.findall(r"^# TYPE (\w+) histogram$", text, re.M):
        described |= {f"{name}_{part}" for part in ("bucket", "count", "sum")}
    assert names == described
    for name in HISTOGRAMS:
        assert found[f"gptoss_{name}_count", ""] == 2, name
        assert found[f"gptoss_{name}_bucket", "+Inf"] == 2, name
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in told]
    assert cached[1] > 16
    for name, values in (
        ("prompt", [usage["prompt_tokens"] for usage in told]),
        ("generated", [usage["completion_tokens"] for usage in told]),
        ("cached", cached),
    ):
        assert found[f"gptoss_{name}_tokens_sum", ""] == sum(values)
        bucket = f"gptoss_{name}_tokens_bucket"
        for (_, bound), n in ((k, v) for k, v in found.items() if k[0] == bucket):
            assert n == sum(value <= float(bound) for value in values), (name, bound)
    spent = {phase: _phase(text, phase) for phase in ("queue", "prefill", "decode")}
    assert found["gptoss_queue_seconds_sum", ""] == pytest.approx(spent["queue"])
    first = found["gptoss_time_to_first_token_seconds_sum", ""]
    assert first >= spent["queue"] + spent["prefill"]  # and the load
    mean = found["gptoss_time_per_output_token_seconds_sum", ""]
    assert mean == pytest.approx(spent["decode"] / 39, rel=0.01)  # of two answers of 40 tokens
    engine = server.engine()
    assert engine is not None
    engine.kill()
    wait_until(lambda: "gptoss_engine_crashes_total{" in http.get("/metrics").text)
    http.post("/v1/chat/completions", json=ASK)
    known = {name for name, _ in samples(http)}
    for title, query in queries():
        asked = set(re.findall(r"gptoss_\w+", query))
        assert asked, title
        assert asked <= known, title


def _phase(text: str, phase: str) -> float:
    name = re.escape(f'gptoss_answer_seconds_total{{phase="{phase}"}}')
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found
    return float(found[1])


def queries() -> list[tuple[str, str]]:
    return [(p["title"], t["expr"]) for p in DASHBOARD["panels"] for t in p["targets"]]


@pytest.mark.quick
def test_the_dashboard_is_complete() -> None:
    """Every panel queries the selected data source."""
    asked = "\n".join(query for _, query in queries())
    for name in (
        *(f"{name}_bucket" for name in HISTOGRAMS[:3]),
        *("answers_total", "tokens_total", "cached_tokens_sum", "model_loaded"),
        *("engine_crashes_total", "key_tokens_total"),
    ):
        assert f"gptoss_{name}" in asked
    targets = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]
    assert {target["datasource"]["uid"] for target in targets} == {"${datasource}"}
    assert [each["name"] for each in DASHBOARD["templating"]["list"]] == ["datasource"]
