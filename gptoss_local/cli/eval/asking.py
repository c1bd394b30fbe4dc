"""Puts a suite of questions to a server by `inspect_ai`, which keeps a log and can resume it."""

import datetime
import os
import sys
from collections import defaultdict
from contextlib import redirect_stdout
from importlib import import_module
from typing import Any

from inspect_ai import eval as inspect_eval
from inspect_ai import eval_retry
from inspect_ai.log import EvalSample, list_eval_logs, read_eval_log
from inspect_ai.scorer import value_to_float

from gptoss_local.base.errors import DownloadError, GptOssError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.base.types import Effort
from gptoss_local.cli._output import is_plain, say
from gptoss_local.cli.eval.scores import SUITES, Run, Server, Suite, Tally

_KEY = "GPTOSS_EVAL_API_KEY"  # inspect_ai reads it for the service `gptoss-eval`
_N_TOGETHER = 4
_MAX_TOKENS: dict[Effort, int] = {"low": 2048, "medium": 2048, "high": 16_384}
_MISS = 100  # characters


def ask(
    name: str,
    server: Server,
    effort: Effort,
    limit: int | None,
    settings: Settings,
    *,
    is_saved: bool,
    quiet: bool,
) -> Run:
    """Count the right answers by category; an interrupted run of the same questions resumes."""
    about: dict[str, Any] = {
        "url": server.url,
        "model": server.model,
        "effort": effort,
        "limit": limit or 0,
        "facts": dict(server.facts),
    }
    os.environ[_KEY] = server.key or "none"
    found = _begin_or_continue(name, about, str(settings.evals_dir / "logs" / name), quiet=quiet)
    if not found or found[0].status == "cancelled":  # Ctrl-C
        raise KeyboardInterrupt
    log = found[0]
    if log.status != "success" or not log.samples:
        failed = [s.error.message for s in log.samples or () if s.error]
        why = failed[0] if failed else log.error.message if log.error else "nothing was asked"
        raise GptOssError(
            f"{len(failed) or 'all'} of the answers failed: {why}",
            hint="The same command continues the run.",
        )
    order = {sample_id: n for n, sample_id in enumerate(log.eval.dataset.sample_ids or ())}
    return Run(
        date=datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
        suite=name,
        model=server.model,
        effort=effort,
        url="" if server.facts else server.url,
        scores=_tallies(sorted(log.samples, key=lambda sample: order[sample.id]), name),
        facts=server.facts,
        is_saved=is_saved and bool(server.facts),
    )


def _begin_or_continue(name: str, about: dict[str, Any], logs: str, *, quiet: bool) -> Any:
    can_draw = sys.stderr.isatty() and not is_plain()
    options: dict[str, Any] = {
        "log_dir": logs,
        "display": "none" if quiet else "rich" if can_draw else "plain",
        "ctl_server": False,
        "fail_on_error": True,
        "continue_on_fail": True,
        "max_connections": _N_TOGETHER,
        "max_retries": 3,
        "log_realtime": False,
    }
    with redirect_stdout(sys.stderr):
        task = _made(SUITES[name])
        last = list_eval_logs(
            logs, filter=lambda log: (log.eval.metadata or {}).get("gptoss") == about
        )
        if last and (begun := read_eval_log(last[0])).status != "success":
            say(f"Continuing the run of {begun.eval.created[:16].replace('T', ' ')}.")
            return eval_retry(begun, **options)
        return inspect_eval(
            task,
            model=f"openai-api/gptoss-eval/{about['model']}",
            model_base_url=f"{about['url']}/v1",
            model_args={"stream": False},
            metadata={"gptoss": about},
            limit=about["limit"] or None,
            epochs=1,
            reasoning_effort=about["effort"],
            max_tokens=_MAX_TOKENS[about["effort"]] if name == "smoke" else None,
            **options,
        )


def _made(suite: Suite) -> Any:
    try:
        return getattr(import_module(suite.module), suite.task)()
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{suite.task} needs {error.name}, which is not installed",
            hint="Install it where gptoss is: pip install inspect-evals",
        ) from error
    except Exception as error:  # of whichever library fetches them
        cause: BaseException = error
        while deeper := cause.__cause__ or cause.__context__:
            cause = deeper
        why = cause if isinstance(cause, OSError) else error
        raise DownloadError(f"the questions of {suite.task} are not here: {why}") from error


def _tallies(samples: list[EvalSample], suite: str) -> dict[str, Tally]:
    as_float = value_to_float()
    right, n, miss = defaultdict[str, float](float), defaultdict[str, int](int), dict[str, str]()
    for sample in samples:
        category = str(sample.metadata.get("category", suite))
        (score, *_) = (sample.scores or {}).values()
        value = score.value
        if isinstance(value, dict):  # IFEval's: all instructions of a prompt, read strictly
            value = value["prompt_level_strict"]
        worth = as_float(value)
        right[category] += worth
        n[category] += 1
        if worth < 1:
            miss.setdefault(category, f"{sample.id}: {score.explanation or score.answer}"[:_MISS])
    return {name: Tally(right[name], n[name], miss.get(name, "")) for name in n}
