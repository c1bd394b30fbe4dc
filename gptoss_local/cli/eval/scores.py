"""Keeps the scores of runs and the facts they depend on; computes their certainty."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

from gptoss_local import __version__
from gptoss_local.base.errors import GptOssError
from gptoss_local.base.settings import Settings
from gptoss_local.base.whole_file import write_whole
from gptoss_local.engine.protocol import N_DRAFT_MAX
from gptoss_local.machine.hardware import Machine, llama_version
from gptoss_local.machine.plan.facts import read_facts
from gptoss_local.machine.plan.options import plan_options
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.models.store import ModelEntry, find_model

_Z = 1.96  # of 95 %
_MOST_RUNS = 200


class Server(NamedTuple):
    """A server to ask; `facts`, which scores depend on, are known of our own alone."""

    url: str
    model: str
    key: str = ""
    facts: Mapping[str, str] = {}


class Suite(NamedTuple):
    """A task, with its questions' size and source, and OpenAI's figures by model and effort."""

    module: str
    task: str
    download: str = ""
    published: Mapping[str, Mapping[str, float]] = {}


SUITES = {
    "smoke": Suite("gptoss_local.cli.eval.smoke", "smoke"),
    "gpqa": Suite(
        "inspect_evals.gpqa",
        "gpqa_diamond",
        "198 questions (1.4 MB) from openaipublic.blob.core.windows.net",
        {"gpt-oss:20b": {"low": 0.57, "medium": 0.66, "high": 0.73}},
    ),
    "aime25": Suite(
        "inspect_evals.aime2025",
        "aime2025",
        "30 questions (20 kB) from huggingface.co",
        {"gpt-oss:20b": {"low": 0.33, "medium": 0.73, "high": 0.86}},
    ),
    "ifeval": Suite("inspect_evals.ifeval", "ifeval", "541 questions (1 MB) from huggingface.co"),
    "bfcl": Suite("inspect_evals.bfcl", "bfcl", "some 5,000 questions (60 MB) from github.com"),
}


class Tally(msgspec.Struct, frozen=True):
    """The right answers of a category; `miss` describes the first wrong one."""

    right: float
    n: int
    miss: str = ""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a suite; `url` is empty for our own server, and so are `facts` for others."""

    date: str
    suite: str
    model: str
    effort: str
    url: str = ""
    scores: dict[str, Tally]
    facts: Mapping[str, str] = {}
    is_saved: bool = False

    @property
    def total(self) -> Tally:
        tallies = self.scores.values()
        return Tally(sum(t.right for t in tallies), sum(t.n for t in tallies))

    def asks_as(self, other: "Run") -> bool:
        def asked(run: Run) -> tuple[object, ...]:
            n_questions = {name: tally.n for name, tally in run.scores.items()}
            return run.suite, run.model, run.url, run.effort, n_questions

        return asked(self) == asked(other)


def interval(tally: Tally) -> tuple[float, float]:
    """Return Wilson's interval of 95 %, which also fits few questions and full marks."""
    n, share = tally.n, tally.right / tally.n
    middle = share + _Z**2 / (2 * n)
    half = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    low, high = ((middle + sign * half) / (1 + _Z**2 / n) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)


def is_lower(now: Tally, before: Tally) -> bool:
    """Return whether chance hardly explains it: by Newcombe's interval of a difference."""
    share_now, share_before = now.right / now.n, before.right / before.n
    _, high_now = interval(now)
    low_before, _ = interval(before)
    noise = math.hypot(high_now - share_now, share_before - low_before)
    return share_before - share_now > noise


def read_runs(settings: Settings) -> list[Run]:
    """Return the kept runs, newest last; none if the file cannot be read."""
    path = settings.evals_dir / "runs.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Run])
    except (OSError, msgspec.DecodeError):
        return []


def keep(run: Run, settings: Settings) -> None:
    runs = read_runs(settings)
    saved = [each for each in runs[:-_MOST_RUNS] if each.is_saved]
    text = msgspec.json.encode([*saved, *runs[-_MOST_RUNS:], run]).decode()
    write_whole(settings.evals_dir / "runs.json", text)


def changes(run: Run, now: Mapping[str, str]) -> list[str]:
    return [name for name, fact in run.facts.items() if now.get(name) != fact]


def stale(machine: Machine, settings: Settings) -> Iterator[tuple[Run, list[str]]]:
    """Yield the newest saved run of each model and suite, and the names of changed facts."""
    newest = {
        (run.suite, run.model, run.effort): run for run in read_runs(settings) if run.is_saved
    }
    for run in newest.values():
        with suppress(GptOssError):  # the model is gone, or does not fit any more
            entry = find_model(run.model, settings)
            yield run, changes(run, facts_of(entry, machine, settings))


def facts_of(entry: ModelEntry, machine: Machine, settings: Settings) -> dict[str, str]:
    build = f"{machine.backend} {machine.cuda_build or ''}".strip()
    facts = {"gptoss": __version__, "llama.cpp": f"{llama_version()}, {build}"}
    if entry.upstream:
        return facts | {"the model": repr(entry.upstream)}
    facts["the model"] = f"{entry.weights_id[:16]} {entry.adapter or ''}".strip()
    return facts | {"the plan": _plan(entry, machine, settings)}


def _plan(entry: ModelEntry, machine: Machine, settings: Settings) -> str:
    gpus = tuple(msgspec.structs.replace(g, free_bytes=g.total_bytes) for g in machine.gpus)
    idle = msgspec.structs.replace(machine, gpus=gpus, available_bytes=machine.total_bytes)
    model = read_facts(entry.ensure_file(settings), entry.adapter)
    plan = make_plan(model, idle, plan_options(settings, N_DRAFT_MAX))
    context = plan.context_params
    return (
        f"{plan.placement.n_gpu_layers} layers on GPUs, experts of "
        f"{len(plan.placement.host_experts)} in RAM, {context.n_ctx} tokens, {settings.kv_type}"
    )
