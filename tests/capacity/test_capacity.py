"""How many machines, from figures with a known answer and from recorded arrivals."""

from pathlib import Path

import pytest

from gptoss_local.cluster.capacity.profile import Profile, from_benchmark
from gptoss_local.cluster.capacity.simulated_engine import Arrival
from gptoss_local.cluster.capacity.sizing import Goal, Promise, size, size_recorded
from gptoss_local.cluster.capacity.source import read_arrivals
from gptoss_local.errors import ContextOverflowError, DoesNotFitError, UsageError
from gptoss_local.runner.measuring import AtDepth, AtWidth

pytestmark = pytest.mark.quick

FLAT = Profile(  # any number of rows takes 20 ms: 50 tokens/s of each answer, 200 of four
    n_ctx=8192,
    n_batch=512,
    n_seq=4,
    decode=((1, 0.02), (4, 0.02)),
    prefill=((1, 0.001), (512, 0.001)),
)


def test_one_machine_carries_what_its_steps_allow() -> None:
    """Never more than 200 / 25 active users, of whom each is a tenth; queues take their share."""
    goal = Goal(n_users=100, tokens_per_user_s=25, first_token_s=2, n_prompt=50, n_answer=40)
    found = size(FLAT, goal)
    assert 40 <= found.users_per_machine <= 80
    assert found.n_machines == -(-100 // found.users_per_machine)
    assert found.demand.tok_s == pytest.approx(250)


def test_machines_are_added_until_the_promise_is_kept() -> None:
    requests = [Arrival(at_s=0.0, prompt=((n, 50),), n_answer=50) for n in range(16)]
    found = size_recorded(FLAT, Promise(tokens_per_user_s=25, first_token_s=1.5), requests)
    assert [each.n_machines for each in found] == [1, 1, 2, 2]
    with pytest.raises(DoesNotFitError, match="64 machines"):
        size_recorded(FLAT, Promise(tokens_per_user_s=60, first_token_s=1.5), requests)


def test_recorded_arrivals(tmp_path: Path) -> None:
    line = '{"timestamp": 1500, "input_length": 700, "output_length": 9, "hash_ids": [7, 8]}'
    path = tmp_path / "trace.jsonl"
    path.write_text(line)
    (arrival,) = read_arrivals(path, 1000)
    assert (arrival.at_s, arrival.n_answer, len(arrival.tokens)) == (1.5, 9, 700)
    with pytest.raises(ContextOverflowError, match="line 1 of"):
        read_arrivals(path, 708)
    path.write_text("\n")
    with pytest.raises(UsageError, match="no request"):
        read_arrivals(path, 1000)


def test_noise_of_a_benchmark_makes_nothing_free() -> None:
    depths = [AtDepth(128, 500, 90), AtDepth(512, 2000, 100), AtDepth(2048, 3000, 110)]
    widths = [AtWidth(1, 100), AtWidth(2, 400)]
    found = from_benchmark(depths, widths, n_ctx=4096, n_batch=512, n_seq=2, has_gpu=False)
    assert all(found.step_s([], [(0, n)], 0) > 0 for n in (1, 31, 32, 512))
