"""Find how many machines keep a promise to a number of users."""

import itertools
import math
import random
import statistics
from collections.abc import Callable, Sequence

import msgspec

from gptoss_local.cluster.capacity.profile import Profile
from gptoss_local.cluster.capacity.simulated_engine import (
    Arrival,
    Served,
    SimulatedEngine,
    least_outstanding,
    prefix_aware,
    replay,
)
from gptoss_local.errors import ContextOverflowError, DoesNotFitError

_N_REQUESTS, _N_WARM_UP = 300, 60  # of a simulation; the first ones find an empty machine
_SHARE = 0.95  # of the answers keep the promise
_N_HALVINGS = 7
ACTIVE = 0.1
"""Average share of the users with an answer under way."""
_NUMBERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of machines that are tried


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """At least `tokens_per_user_s`, and `first_token_s` at most, for 95 % of the answers."""

    tokens_per_user_s: float
    first_token_s: float


class Goal(Promise, frozen=True, kw_only=True):
    n_users: int
    n_prompt: int
    n_answer: int


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """The speed that requests are served with.

    Attributes:
        tok_s: Of all answers while requests arrive.
        user_tok_s: Of 95 % of the answers, at least.
        first_token_s: In 95 % of the cases at most.
        token_gap_s: Between two tokens of an answer, in 95 % of the cases at most.
        cached_share: Of the prompts' tokens.
    """

    tok_s: float
    user_tok_s: float
    first_token_s: float
    first_token_median_s: float
    token_gap_s: float
    cached_share: float

    def keeps(self, promise: Promise) -> bool:
        is_fast = self.user_tok_s >= promise.tokens_per_user_s
        return is_fast and self.first_token_s <= promise.first_token_s


class MachineLoad(Service, frozen=True, kw_only=True):
    """The speed for the users of one machine, with `n_streams` answers on average."""

    n_users: float
    n_streams: float


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    n_streams: float
    tok_s: float
    prompt_tok_s: float
    n_cells: int


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """The machines that a goal takes.

    Attributes:
        users_per_machine: At most.
        n_streams_memory: Prompts with their answers that fit into the cache together.
        load: Of each of the `n_machines`.
        largest, one_more: With `users_per_machine`, and with one more active stream.
    """

    n_machines: int
    users_per_machine: int
    n_streams_memory: int
    demand: Demand
    load: MachineLoad
    largest: MachineLoad
    one_more: MachineLoad


def size(profile: Profile, goal: Goal, report: Callable[[str], None] = lambda _: None) -> Capacity:
    n_cells = goal.n_prompt + goal.n_answer
    if n_cells > profile.n_ctx:
        raise ContextOverflowError(
            f"a prompt and its answer have {n_cells:,} tokens, and the context holds "
            f"{profile.n_ctx:,}"
        )
    _check_alone(profile, goal)
    loads: dict[float, MachineLoad] = {}

    def load_of(n_streams: float) -> MachineLoad:
        if n_streams not in loads:
            report(f"{n_streams / ACTIVE:,.0f} users on one machine")
            loads[n_streams] = simulate(profile, goal, n_streams)
        return loads[n_streams]

    kept, broken = 0.0, max(n / s for n, s in profile.decode) / goal.tokens_per_user_s
    for _ in range(_N_HALVINGS):
        n_streams = (kept + broken) / 2
        kept, broken = (n_streams, broken) if load_of(n_streams).keeps(goal) else (kept, n_streams)
    users_per_machine = max(1, math.floor(kept / ACTIVE))  # alone, one never waits
    n_machines = math.ceil(goal.n_users / users_per_machine)
    n_active = goal.n_users * ACTIVE
    largest = load_of(users_per_machine * ACTIVE)
    return Capacity(
        n_machines=n_machines,
        users_per_machine=users_per_machine,
        n_streams_memory=profile.n_ctx // n_cells,
        demand=Demand(
            n_streams=n_active,
            tok_s=n_active * goal.tokens_per_user_s,
            prompt_tok_s=n_active * goal.tokens_per_user_s / goal.n_answer * goal.n_prompt,
            n_cells=math.ceil(n_active) * n_cells,
        ),
        load=load_of(n_active / n_machines),
        largest=largest,
        one_more=load_of(largest.n_streams + 1),
    )


def simulate(profile: Profile, goal: Goal, n_streams: float) -> MachineLoad:
    """Simulate a machine with random arrivals (Poisson) of `n_streams` answers at a time."""
    rate = n_streams * goal.tokens_per_user_s / goal.n_answer
    dice = random.Random(0)  # the same for every load, so that loads can be compared
    times = itertools.accumulate(dice.expovariate(1.0) / rate for _ in range(_N_REQUESTS))
    requests = [
        Arrival(at_s=at_s, prompt=((number, goal.n_prompt),), n_answer=goal.n_answer)
        for number, at_s in enumerate(times)
    ]
    served = replay(requests, [SimulatedEngine(profile)])
    service = summarize(served[_N_WARM_UP:], requests[_N_WARM_UP:])
    return MachineLoad(
        n_users=n_streams / ACTIVE,
        n_streams=n_streams,
        **msgspec.structs.asdict(service),
    )


def summarize(served: Sequence[Served], requests: Sequence[Arrival]) -> Service:
    first_s = [each.first_token_s for each in served]
    gaps_s = [
        later - sooner for each in served for sooner, later in itertools.pairwise(each.times_s)
    ]
    begin_s, end_s = (edge(each.arrived_s for each in served) for edge in (min, max))
    end_s = max(end_s, served[0].times_s[-1])
    in_time = [time_s for each in served for time_s in each.times_s if time_s <= end_s]
    n_prompt = sum(n for request in requests for _, n in request.prompt)
    return Service(
        tok_s=len(in_time) / (end_s - begin_s),
        user_tok_s=_quantile([each.tok_s for each in served], 1 - _SHARE),
        first_token_s=_quantile(first_s, _SHARE),
        first_token_median_s=statistics.median(first_s),
        token_gap_s=_quantile(gaps_s, _SHARE) if gaps_s else 0.0,
        cached_share=sum(each.n_cached for each in served) / n_prompt,
    )


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, math.floor(share * len(values)))]


def _check_alone(profile: Profile, goal: Goal) -> None:
    request = Arrival(at_s=0.0, prompt=((0, goal.n_prompt),), n_answer=goal.n_answer)
    (alone,) = replay([request], [SimulatedEngine(profile)])
    if alone.first_token_s > goal.first_token_s:
        raise DoesNotFitError(
            f"a prompt of {goal.n_prompt:,} tokens alone has its first token after "
            f"{alone.first_token_s:.1f} s, not {goal.first_token_s:g}",
            hint="It takes a faster machine, shorter prompts or a larger --first-token.",
        )
    if alone.tok_s < goal.tokens_per_user_s:
        raise DoesNotFitError(
            f"an answer alone comes with {alone.tok_s:.1f} tokens/s, "
            f"not {goal.tokens_per_user_s:g}",
            hint="It takes a faster machine or fewer --tokens-per-user-s.",
        )


class Routed(Service, frozen=True, kw_only=True):
    """The speed of recorded requests on several machines, by routing."""

    n_machines: int
    routing: str


ROUTES = {"least outstanding": least_outstanding, "prefix-aware": prefix_aware}


def size_recorded(
    profile: Profile,
    promise: Promise,
    requests: Sequence[Arrival],
    report: Callable[[str], None] = lambda _: None,
) -> list[Routed]:
    """Serve recorded requests with more and more machines, until they keep the promise."""
    found: list[Routed] = []
    for n_machines in _NUMBERS:
        report(f"{n_machines} machine{'s' * (n_machines > 1)}")
        for routing, route in ROUTES.items():
            served = replay(requests, [SimulatedEngine(profile) for _ in range(n_machines)], route)
            service = msgspec.structs.asdict(summarize(served, requests))
            found.append(Routed(n_machines=n_machines, routing=routing, **service))
        if any(each.keeps(promise) for each in found[-len(ROUTES) :]):
            return found
    raise DoesNotFitError(
        f"{_NUMBERS[-1]} machines do not keep that: first tokens come after "
        f"{found[-1].first_token_s:.1f} s, answers with {found[-1].user_tok_s:.1f} tokens/s",
        hint="It takes faster machines, a larger --first-token or fewer --tokens-per-user-s.",
    )
