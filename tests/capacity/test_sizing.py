"""How many machines, from figures with a known answer."""

import msgspec
import pytest

from gptoss_local.cluster.capacity.profile import Profile
from gptoss_local.cluster.capacity.simulated_engine import (
    Arrival,
    Served,
    SimulatedEngine,
    prefix_aware,
)
from gptoss_local.cluster.capacity.sizing import Goal, Promise, size, size_recorded
from gptoss_local.errors import ContextOverflowError, DoesNotFitError

FLAT = Profile(  # any number of rows takes 20 ms: 50 tokens/s of each answer, 200 of four
    n_ctx=8192,
    n_batch=512,
    n_seq=4,
    decode=((1, 0.02), (4, 0.02)),
    prefill=((1, 0.001), (512, 0.001)),
)
GOAL = Goal(n_users=100, tokens_per_user_s=25, first_token_s=2, n_prompt=50, n_answer=40)


def test_one_machine_carries_what_its_steps_allow() -> None:
    """Never more than 200 / 25 active users, of whom each is a tenth; queues take their share."""
    found = size(FLAT, GOAL)
    assert 40 <= found.users_per_machine <= 80
    assert found.n_machines == -(-100 // found.users_per_machine)
    assert found.largest.keeps(GOAL)
    assert found.load.keeps(GOAL)
    assert found.one_more.first_token_s > found.largest.first_token_s
    assert found.demand.tok_s == pytest.approx(250)
    assert found.demand.prompt_tok_s == pytest.approx(312.5)
    assert found.n_streams_memory == 8192 // 90


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokens_per_user_s": 51}, "an answer alone comes with 50.0 tokens/s, not 51"),
        ({"first_token_s": 0.02}, "has its first token after"),
    ],
)
def test_what_no_number_of_machines_does_is_said(change: dict[str, float], says: str) -> None:
    slow = msgspec.structs.replace(FLAT, prefill=((1, 0.001), (512, 0.5)))
    with pytest.raises(DoesNotFitError, match=says):
        size(slow, msgspec.structs.replace(GOAL, **change))


def test_a_prompt_that_never_fits_is_refused() -> None:
    with pytest.raises(ContextOverflowError, match="8,200 tokens"):
        size(FLAT, msgspec.structs.replace(GOAL, n_prompt=8160))


def test_prefix_aware_routing_weighs_what_is_to_read_and_what_is_held() -> None:
    """Shared tokens of prompts are held once; cached ones are not read again."""
    busy, idle = SimulatedEngine(FLAT), SimulatedEngine(FLAT)
    prompt = Arrival(at_s=0, prompt=((1, 300), (9, 40)), n_answer=2).tokens
    for number in range(2):
        other = Arrival(at_s=0, prompt=((1, 300), (2 + number, 50)), n_answer=9)
        busy.add(Served(number, 0.0), other.tokens, other.n_answer)
    assert busy.n_tokens_held(prompt) == 300 + 50 + 50 + 40
    assert busy.n_tokens_unread == 700
    assert prefix_aware([busy, idle], prompt) is idle
    now_s = 0.0
    while busy.n_tokens_unread:
        assert busy.begin_step() is not None
        busy.end_step(now_s)
    assert prefix_aware([busy, idle], prompt) is busy


def test_machines_are_added_until_the_promise_is_kept() -> None:
    requests = [Arrival(at_s=0.0, prompt=((n, 50),), n_answer=50) for n in range(16)]
    found = size_recorded(FLAT, Promise(tokens_per_user_s=25, first_token_s=1.5), requests)
    assert [each.n_machines for each in found] == [1, 1, 2, 2]
    assert found[-1].first_token_s < 1.5 < found[0].first_token_s
    with pytest.raises(DoesNotFitError, match="64 machines"):
        size_recorded(FLAT, Promise(tokens_per_user_s=60, first_token_s=1.5), requests)
