"""Dynamo's mocker, with our step times, serves a few requests as the simulated engine does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dynamo.packages import dynamo_packages

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
BENCH = {
    "model": "m",
    "n_ctx": 16384,
    "depths": [
        {"n_tokens": 512, "prefill_tok_s": 5120, "decode_tok_s": 100},
        {"n_tokens": 1024, "prefill_tok_s": 5120, "decode_tok_s": 100},
    ],
    "widths": [
        {"n_streams": 1, "decode_tok_s": 100},
        {"n_streams": 2, "decode_tok_s": 100},
    ],
    "plan": {"shape": {"n_batch": 2048, "n_seq": 2}, "placement": {"layers_per_gpu": [1]}},
}
ARRIVALS = [  # milliseconds, tokens of prompt and answer, blocks of 512 tokens
    (0, 1024, 11, [1, 2]),  # read in 200 ms
    (2000, 512, 101, [3]),  # read in 100 ms, then a token every 10 ms
    (2955, 1024, 11, [1, 4]),  # waits 5 ms, and half is read in a step of 110 ms
]


def test_the_mocker_takes_our_step_times(tmp_path: Path) -> None:
    dynamo_packages()  # skips the test where it cannot be fetched
    bench, arrivals = tmp_path / "bench.json", tmp_path / "trace.jsonl"
    bench.write_text(json.dumps({"benchmark": BENCH}))
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    lines = [json.dumps(dict(zip(keys, line, strict=True))) for line in ARRIVALS]
    arrivals.write_text("\n".join(lines))
    command = [sys.executable, "bench/mocker_check.py", "--workers", "1", "--like-vllm"]
    command += ["--bench", str(bench), "--arrivals", str(arrivals)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    rows = [[cell.strip() for cell in line.split("|")] for line in run.stdout.splitlines()]
    found = [row[3:7] for row in rows if row[3] in ("gptoss, like vLLM", "the mocker")]
    assert len(found) == 2 * 2
    assert {tuple(row[1:]) for row in found} == {("115 and 200 ms", "50", "20.0%")}
