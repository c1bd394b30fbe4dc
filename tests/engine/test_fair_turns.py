"""At random arrivals no request waits for more than one answer of each other caller."""

import itertools
import random
from collections import Counter
from collections.abc import Callable

import pytest

from tests.engine.simulated_engine import Arrival, Profile, SimulatedEngine, replay

STEP_S = 0.01
N_CLIENTS, N_EACH, N_REQUESTS = 12, 2, 12
PROFILE = Profile(
    n_ctx=4096,
    n_batch=256,
    n_seq=4,
    decode=((1, STEP_S), (4, STEP_S)),
    prefill=((1, STEP_S), (256, STEP_S)),
)
Client = tuple[int, int]
"""Its number, and one of those who ask for it one question after the other."""


def most_waited_for(
    seed: int,
    n_tokens: Callable[[int], int],
    name: Callable[[int, int, int], tuple[str, str]],
    who: Callable[[Client], object] = lambda client: client,
) -> dict[object, int]:
    """Return by whom the most answers of another that began while one of its requests waited.

    `name` gives the key and connection of a client's one that asks its n-th question.
    """
    rng, arrivals, clients = random.Random(seed), list[Arrival](), list[Client]()
    for number, each in itertools.product(range(N_CLIENTS), range(N_EACH)):
        follows = None
        for n in range(N_REQUESTS if number or not each else 0):  # client 0 has one, others two
            arrivals.append(
                Arrival(
                    at_s=rng.uniform(0, 0.5 if follows is None else 0.02),
                    prompt=((100 + len(arrivals), 4),),
                    n_answer=round(n_tokens(number) * rng.uniform(0.7, 1.3)),
                    follows=follows,
                    caller=name(number, each, n),
                )
            )
            clients.append((number, each))
            follows = len(arrivals) - 1
    served = replay(arrivals, SimulatedEngine(PROFILE))
    begun_s = {each.number: each.times_s[0] - 1.01 * STEP_S for each in served}
    most = dict.fromkeys(map(who, clients), 0)
    for each in served:
        me, until_s = who(clients[each.number]), begun_s[each.number]
        others = (who(clients[n]) for n, s in begun_s.items() if each.arrived_s < s < until_s)
        waited_for = Counter(other for other in others if other != me)
        most[me] = max([most[me], *waited_for.values()])
    return most


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("n_polite", [20, 200])
def test_of_each_other_connection_one_answer(seed: int, is_kept: bool, n_polite: int) -> None:
    """Whether connections are kept or new, however long the first client's answers are."""

    def name(number: int, each: int, n: int) -> tuple[str, str]:
        return "key", f"{number} {each}" + ("" if is_kept else f" {n}")

    most = most_waited_for(seed, lambda number: 20 if number else n_polite, name)
    assert max(most.values()) == 1


@pytest.mark.parametrize("seed", range(3))
def test_of_a_key_with_many_connections_one_answer(seed: int) -> None:
    """The first client has a key for itself, and the others share one."""

    def name(number: int, each: int, n: int) -> tuple[str, str]:
        return f"key {min(number, 1)}", f"{number} {each}"

    most = most_waited_for(seed, lambda _: 20, name, who=lambda client: min(client[0], 1))
    assert most[0] <= 1


@pytest.mark.parametrize("seed", range(3))
def test_of_short_answers_as_many_as_cost_one(seed: int) -> None:
    """Every third client asks for a tenth; a client waits for as many as cost one answer."""
    most = most_waited_for(
        seed, lambda n: 60 if n % 3 else 6, lambda n, each, _: ("", f"{n} {each}")
    )
    assert 1 < max(most.values()) <= 10
