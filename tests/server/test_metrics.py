"""What a real server tells Prometheus, and that the dashboard asks for nothing else."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gptoss_local.api_keys import add_key
from tests.conftest import RunningServer, run_server, wait_until
from tests.docs.pages import ROOT
from tests.server.test_limits import COUNT
from tests.server.test_serving import client

DASHBOARD = json.loads((ROOT / "docs" / "grafana.json").read_text(encoding="utf-8"))
HISTOGRAMS = (
    *("time_to_first_token_seconds", "time_per_output_token_seconds", "queue_seconds"),
    *("prompt_tokens", "cached_tokens", "generated_tokens"),
)
ASK = COUNT | {"stream": False, "max_tokens": 40}

Samples = dict[tuple[str, str], float]


def samples(http: httpx.Client) -> Samples:
    """All values by name and, of histograms, upper bound."""
    families = text_string_to_metric_families(http.get("/metrics").text)
    found = (sample for family in families for sample in family.samples)
    return {(s.name, s.labels.get("le", "")): s.value for s in found}


@pytest.fixture
def asking(nano_home: Path, tmp_path: Path) -> Iterator[tuple[httpx.Client, RunningServer]]:
    key = add_key(tmp_path / "keys.toml", "ada")
    path = str(tmp_path / "keys.toml")
    with run_server(nano_home, api_keys_file=path) as server, client(server) as http:
        http.headers["x-api-key"] = key
        yield http, server


def test_metrics_and_the_dashboard(asking: tuple[httpx.Client, RunningServer]) -> None:
    http, server = asking
    told: list[dict[str, Any]] = []
    for _ in range(2):  # the second has its prompt cached
        reply = http.post("/v1/chat/completions", json=ASK)
        told.append(reply.json()["usage"])
    found = samples(http)
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
    spent = {phase: _phase(http, phase) for phase in ("queue", "prefill", "decode")}
    assert found["gptoss_queue_seconds_sum", ""] == pytest.approx(spent["queue"])
    first = found["gptoss_time_to_first_token_seconds_sum", ""]
    assert first >= spent["queue"] + spent["prefill"]  # and the load
    mean = found["gptoss_time_per_output_token_seconds_sum", ""]
    assert mean == pytest.approx(spent["decode"] / 39, rel=0.2)  # of two answers of 40 tokens
    engine = server.engine()
    assert engine is not None
    engine.kill()
    wait_until(lambda: "gptoss_engine_crashes_total{" in http.get("/metrics").text)
    http.post("/v1/chat/completions", json=ASK)
    known = {name for name, _ in samples(http)}
    for title, query in queries():
        names = set(re.findall(r"gptoss_\w+", query))
        assert names, title
        assert names <= known, title


def _phase(http: httpx.Client, phase: str) -> float:
    name = re.escape(f'gptoss_answer_seconds_total{{phase="{phase}"}}')
    found = re.search(rf"^{name} (\S+)$", http.get("/metrics").text, re.MULTILINE)
    assert found
    return float(found[1])


def queries() -> list[tuple[str, str]]:
    return [(p["title"], t["expr"]) for p in DASHBOARD["panels"] for t in p["targets"]]


def test_the_dashboard_is_complete() -> None:
    """It has what the issue wants, no panel covers another, and each has a source that is there."""
    asked = "\n".join(query for _, query in queries())
    for name in (
        *(f"{name}_bucket" for name in HISTOGRAMS[:3]),
        *("answers_total", "tokens_total", "cached_tokens_sum", "model_loaded"),
        *("engine_crashes_total", "key_tokens_total"),
    ):
        assert f"gptoss_{name}" in asked
    for quantile in ("0.5", "0.95"):
        assert asked.count(f"histogram_quantile({quantile},") >= 3
    for query in asked.splitlines():
        assert query.count("(") == query.count(")"), query
    cells = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert (x, y) not in cells, panel["title"]
                cells.add((x, y))
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert [each["name"] for each in DASHBOARD["templating"]["list"]] == ["datasource"]
