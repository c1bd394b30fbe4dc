"""A step that hangs is noticed; one that is slow for a reason is not."""

import threading
import time
from collections.abc import Iterator

import pytest

from gptoss_local.engine.worker.process import Watch

pytestmark = pytest.mark.quick


WATCHES: list[Watch] = []


@pytest.fixture(autouse=True)
def end_of_threads() -> Iterator[None]:
    """Each looks fifty times a second until something hangs."""
    yield
    for watch in WATCHES:
        watch._n_ticks, watch._is_in_step = 10**6, True
    WATCHES.clear()


class Steps:
    """Steps of so many tokens and seconds, at a limit of 0.2 s or 20 times the longest."""

    def __init__(self, *, unknown_s: float = 9) -> None:
        self.n_tokens = 0
        self.hung = threading.Event()
        self._watch = Watch(
            lambda: self.n_tokens,
            lambda _: self.hung.set(),
            least_s=0.2,
            unknown_s=unknown_s,
            tick_s=0.02,
        )
        WATCHES.append(self._watch)

    def take(self, n_tokens: int, seconds: float, *, in_pause: bool = False) -> bool:
        """Return whether it was noticed."""
        self.n_tokens = n_tokens
        with self._watch.step():
            if in_pause:
                with self._watch.pause():
                    time.sleep(seconds)
            elif seconds:
                return self.hung.wait(seconds)
        return self.hung.is_set()


def test_a_step_that_is_much_longer_than_others_hangs() -> None:
    steps = Steps()
    for _ in range(3):
        assert not steps.take(1, 0.001)
    assert not steps.take(1, 0.1)
    steps = Steps()
    steps.take(1, 0.001)
    assert steps.take(1, 5)


def test_a_step_of_more_tokens_may_take_longer() -> None:
    steps = Steps()
    steps.take(1, 0.05)
    assert not steps.take(512, 0.5)
    steps = Steps()
    steps.take(512, 0.002)
    assert steps.take(1, 5)


@pytest.mark.parametrize("n_tokens", [0, 512])
def test_where_nothing_is_known_it_may_take_long(n_tokens: int) -> None:
    assert not Steps().take(n_tokens, 0.3)
    assert Steps(unknown_s=0.3).take(n_tokens, 5)


def test_a_server_that_does_not_read_is_no_hang() -> None:
    steps = Steps()
    steps.take(1, 0.001)
    assert not steps.take(1, 0.4, in_pause=True)
