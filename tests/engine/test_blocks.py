"""A listener's view of the cache always equals the prefixes that a new request would find."""

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.engine.llama import Model
from gptoss_local.engine.protocol import BlocksChanged, Event
from gptoss_local.engine.worker.engine import Engine
from tests.engine.interleavings import Interleaving, SmallMasks, repeatable

N_BLOCK = 8

Prefix = tuple[int, ...]


class Listener:
    """A router's view of one engine; `loses` says of an event's number whether it gets lost."""

    def __init__(self, loses: Callable[[int], bool]) -> None:
        self._loses = loses
        self._prefixes: dict[int | None, Prefix] = {None: ()}
        self.done: Counter[str] = Counter()

    def take(self, events: list[Event]) -> None:
        for event in events:
            assert isinstance(event, BlocksChanged)
            self.done["events"] += 1
            if self._loses(self.done["events"]):
                continue
            for block in event.removed:
                del self._prefixes[block]
            for run in event.stored:
                parent = run.parent
                for i, block in enumerate(run.hashes):
                    assert block not in self._prefixes, "a block is stored twice"
                    tokens = run.tokens[N_BLOCK * i : N_BLOCK * (i + 1)]
                    self._prefixes[block] = (*self._prefixes[parent], *tokens)
                    parent = block
            self.done["removed"] += len(event.removed)
            self.done["stored"] += sum(len(run.hashes) for run in event.stored)

    def check(self, engine: Engine) -> None:
        self.take(engine.block_changes())
        believed = [prefix for block, prefix in self._prefixes.items() if block is not None]
        assert set(believed) == held(engine)
        assert len(believed) == len(set(believed))


def held(engine: Engine) -> set[Prefix]:
    """All that a request would find, asked slot by slot; llama.cpp's cells agree with the books."""
    assert engine.check() == []
    prefixes = set()
    for slot in engine._slots.all:
        n_tokens = engine._cache.match(slot.tokens, len(slot.tokens), slot.salt).n_tokens
        tokens = slot.tokens.tolist()
        prefixes |= {tuple(tokens[:n]) for n in range(N_BLOCK, n_tokens + 1, N_BLOCK)}
    return prefixes


def listen(
    model: Model, seeds: range, loses: Callable[[int], bool] = lambda _: False
) -> tuple[Counter[str], list[Listener]]:
    """Let random clients use engines, each with a listener of all its steps and rests."""
    done: Counter[str] = Counter()
    listeners: dict[Engine, Listener] = {}

    def checked(act: Callable[[Engine], Any]) -> Callable[[Engine], Any]:
        def act_and_check(engine: Engine) -> Any:
            if engine not in listeners:
                engine.report_blocks(N_BLOCK)
            outcome = act(engine)
            listeners.setdefault(engine, Listener(loses)).check(engine)
            return outcome

        return act_and_check

    with repeatable(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Engine, "step", checked(Engine.step))
        patch.setattr(Engine, "rest", checked(Engine.rest))
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                run = Interleaving(model, SmallMasks(), seed, Path(folder), "bf16")
                run.run()
            done += run.done
    for listener in listeners.values():
        done += listener.done
    return done, list(listeners.values())


@pytest.mark.parametrize(
    "seeds", [range(1, 24, 2), pytest.param(range(60), marks=pytest.mark.nightly)], ids=len
)
def test_a_listener_knows_the_cache(smooth_model: Model, seeds: range) -> None:
    done, _ = listen(smooth_model, seeds)
    print(dict(done))
    wanted = ("removed", "stored", "cancelled", "prefetched", "preempted", "rests", "restarts")
    assert all(done[what] for what in wanted), done


@pytest.mark.nightly
def test_a_lost_event_is_noticed(smooth_model: Model) -> None:
    for seed in range(5):
        _, listeners = listen(smooth_model, range(seed, seed + 1))
        lost = random.Random(seed).randint(1, max(each.done["events"] for each in listeners))
        with pytest.raises((AssertionError, KeyError)):
            listen(smooth_model, range(seed, seed + 1), lambda n, lost=lost: n == lost)
