"""A real frontend of Dynamo with two of our workers, as its clients see it."""

import asyncio
import random
import signal
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gptoss_local.engine.protocol import Finished, Tokens
from gptoss_local.harmony import Vocabulary
from gptoss_local.harmony.vocabulary import END
from gptoss_local.models.catalog import UpstreamAddress
from gptoss_local.runner.upstream.answer import probe
from gptoss_local.runner.upstream.client import Upstream
from tests.conftest import wait_until
from tests.dynamo.cluster import N_PARALLEL, Answer, Cluster, running
from tests.dynamo.packages import dynamo_packages
from tests.upstream.test_conversations import CONVERSATIONS, collect, ids

pytestmark = pytest.mark.nightly

N_LONG = 20_000  # tokens of an answer that no test has the time for


@pytest.fixture(scope="module")
def cluster(nano_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    packages = dynamo_packages()
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        running(packages, nano_home, tmp_path_factory.mktemp("dynamo")) as started,
    ):
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        started.add_workers(2)
        yield started


def finish(answer: Answer) -> Answer:
    list(answer)
    assert not answer.error
    return answer


def answered(cluster: Cluster, prompt: list[int]) -> Answer:
    """Ask again where the frontend has not noticed yet that a worker is gone: it answers 503."""
    answers: list[Answer] = []

    def is_answered() -> bool:
        answers.append(cluster.stream(prompt, 2))
        return not failed(answers[-1])

    wait_until(is_answered)
    return answers[-1]


def failed(answer: Answer) -> str:
    list(answer)
    return answer.error


def prompts(seed: int, n: int) -> list[list[int]]:
    """Messages that share nothing; each ends where a conversation continues."""
    rng = random.Random(seed)
    return [[*(rng.randrange(199_000) for _ in range(199)), END] for _ in range(n)]


def fill(cluster: Cluster, worker: int, seed: int) -> list[Generator[int, None, None]]:
    """Have answers in all places of a worker, and return their streams."""
    streams = [
        iter(cluster.stream(prompt, N_LONG, worker=worker, ignore_eos=True))
        for prompt in prompts(seed, N_PARALLEL)
    ]
    for stream in streams:
        next(stream)
    return streams


def test_golden_conversations(cluster: Cluster, vocabulary: Vocabulary, nano_gguf: Path) -> None:
    """Token for token, through our own client of a Dynamo frontend."""

    async def converse() -> list[tuple[list[Tokens], Finished]]:
        address = UpstreamAddress(urls=(cluster.url,), kind="dynamo", model="nano", n_ctx=4096)
        upstream = Upstream("far", address, vocabulary, nano_gguf)
        try:
            await upstream.connect(*probe(vocabulary))
            return await asyncio.gather(*(collect(upstream, g["prompt"]) for g in some))
        finally:
            await upstream.close()

    some = CONVERSATIONS[-12:]
    for golden, (events, finished) in zip(some, asyncio.run(converse()), strict=True):
        assert ids(events) == golden["answer"], golden["name"]
        assert finished.reason == "stop"
        assert finished.usage.n_prompt == len(golden["prompt"])


def test_a_prompt_goes_where_its_prefix_is(cluster: Cluster) -> None:
    """Though both workers are idle: only the events of their caches make a difference."""
    asked = prompts(1, 8)
    wanted = list(cluster.workers) * 4
    for prompt, worker in zip(asked, wanted, strict=True):
        answer = finish(cluster.stream(prompt, 2, worker=worker))
        assert (answer.worker, answer.n_cached) == (worker, 0)
    for _ in range(3):  # events arrive after the answers
        wait_until(lambda: [cluster.selects(prompt) for prompt in asked] == wanted)
    for prompt, worker in zip(asked, wanted, strict=True):
        answer = finish(cluster.stream([*prompt, 5], 2))
        assert (answer.worker, answer.n_cached) == (worker, 200)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"min_tokens": 2}, "min_tokens"),
        ({"n": 2, "nvext": {}, "temperature": 1}, "does not know n"),
        ({"prompt": list(range(40_000))}, "40000"),
    ],
)
def test_a_refusal_reaches_the_client(cluster: Cluster, body: dict[str, object], said: str) -> None:
    answer = Answer(cluster.url, [1], 1)
    answer.body |= body
    list(answer)
    assert said in answer.error
    assert "400" in answer.error


def test_options_reach_the_engine(cluster: Cluster) -> None:
    golden = CONVERSATIONS[-1]
    stop = golden["answer"][3]
    answer = finish(cluster.stream(golden["prompt"], 50, stop_token_ids=[stop], logprobs=2))
    assert answer.tokens == golden["answer"][: len(answer.tokens)]
    assert (answer.tokens[-1], answer.end) == (stop, "stop")
    drawn = [
        finish(cluster.stream(golden["prompt"], 20, temperature=2, seed=7, ignore_eos=True)).tokens
        for _ in range(2)
    ]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 20


def test_clients_that_leave_free_their_places(cluster: Cluster) -> None:
    """One in the middle of its answer, and one that still waits for a place."""
    worker = next(iter(cluster.workers))
    streams = fill(cluster, worker, seed=2)
    waiting = cluster.stream(prompts(3, 1)[0], N_LONG, worker=worker, timeout_s=3, ignore_eos=True)
    assert "Timeout" in failed(waiting)
    streams[0].close()
    answer = finish(cluster.stream(prompts(4, 1)[0], 2, worker=worker))
    assert answer.worker == worker
    for stream in streams:
        stream.close()


def test_a_higher_priority_is_answered_first(cluster: Cluster) -> None:
    """Of requests that wait in a worker, whichever came first."""
    worker = next(iter(cluster.workers))
    streams = fill(cluster, worker, seed=8)
    ended: list[int] = []

    def ask(prompt: list[int], priority: int) -> None:
        hints = {"agent_hints": {"priority": priority}} if priority else {}
        finish(cluster.stream(prompt, 40, worker=worker, ignore_eos=True, nvext=hints))
        ended.append(priority)

    with ThreadPoolExecutor() as pool:
        asked = []
        for prompt, priority in zip(prompts(9, 3), [-5, 0, 7], strict=True):
            asked.append(pool.submit(ask, prompt, priority))
            time.sleep(0.5)  # so that they come one after the other
        streams[0].close()
        for each in asked:
            each.result()
    for stream in streams:
        stream.close()
    assert ended == [7, 0, -5]


def test_a_worker_that_is_killed_costs_its_streams_alone(cluster: Cluster) -> None:
    victim, other = cluster.workers
    asked = prompts(5, 4)
    answers = [
        cluster.stream(prompt, 150 if worker == other else N_LONG, worker=worker, ignore_eos=True)
        for prompt, worker in zip(asked, [victim, victim, other, other], strict=True)
    ]
    streams = [iter(answer) for answer in answers]
    for stream in streams:
        next(stream)
    process = cluster.workers.pop(victim)
    process.kill()
    with ThreadPoolExecutor() as pool:
        list(pool.map(list, streams))
    for answer in answers[:2]:
        assert answer.error
        assert answer.end is None
    for answer in answers[2:]:
        assert (len(answer.tokens), answer.end, answer.error) == (150, "length", "")
    for prompt in asked:  # also those that the dead one had
        assert answered(cluster, prompt).worker == other


def test_a_worker_that_is_told_to_end_finishes_its_streams(cluster: Cluster) -> None:
    cluster.add_workers(1)
    leaving, other = cluster.workers
    answer = cluster.stream(prompts(6, 1)[0], 600, worker=leaving, ignore_eos=True)
    stream = iter(answer)
    next(stream)
    process = cluster.workers.pop(leaving)
    process.send_signal(signal.SIGTERM)
    wait_until(lambda: leaving not in cluster.known())
    for prompt in prompts(7, 4):
        assert answered(cluster, prompt).worker == other
    assert process.poll() is None, "the stream was too short for this test"
    list(stream)
    assert (len(answer.tokens), answer.end, answer.error) == (600, "length", "")
    assert process.wait() == 0
