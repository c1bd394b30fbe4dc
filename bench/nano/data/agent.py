"""Questions to a coding agent: a call of the right tool, or the report after its result.

A skill draws the stage: before the call, or after it. `agent_requests` has the user's words,
`agent_results` what tools answer, `agent_reports` what the agent thinks and says.
"""

from collections.abc import Callable, Sequence
from functools import partial

from bench.nano.data.ability import Toolset, arguments_json, call_and_result
from bench.nano.data.agent_reports import Step, call_analysis, report, report_analysis
from bench.nano.data.agent_requests import Task, draw_task, request, request_both
from bench.nano.data.agent_results import draw_failure, draw_result
from bench.nano.data.document import Answer, Branch
from bench.nano.data.source import Source
from bench.nano.phrases import banks
from gptoss_local.harmony.message import Message
from gptoss_local.types import Effort

BANK = banks("results")

_ROLES = ("shell", "create", "read", "edit", "list", "search")


def _single(role: str, source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    """One thing to do: its call, or the report of its result."""
    task = _task(source, toolset, role)
    if task is None:
        return None
    user = _user(request(source, task))
    if source.chance(0.68):
        return _branch(source, toolset, role, [user], _call(effort, task))
    result = draw_result(source, role, task.slots.get("path", ""))
    messages = [user, *_done(effort, task, result)]
    return _branch(source, toolset, role, messages, _reported(effort, [task], [result]))


def _error(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    """The tool has failed."""
    task = _task(source, toolset, *_ROLES)
    if task is None:
        return None
    result = draw_failure(source, task.slots.get("path", ""))
    messages = [_user(request(source, task)), *_done(effort, task, result)]
    answer = _reported(effort, [task], [result])
    return _branch(source, toolset, "agent_error", messages, answer)


def _two(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    """Two things to do one after the other; a failure of the first one ends it."""
    first, second = _task(source, toolset, *_ROLES), _task(source, toolset, *_ROLES)
    if first is None or second is None or first.slots == second.slots:
        return None
    messages = [_user(request_both(source, first, second))]
    stage = source.rng.random()
    if stage < 0.38:
        return _branch(source, toolset, "two", messages, _call(effort, first, "first"))
    fails = stage > 0.97
    results = [_result(source, first, fails=fails)]
    messages += _done(effort, first, results[0], "first")
    if fails:
        return _branch(source, toolset, "two", messages, _reported(effort, [first], results))
    if stage < 0.76:
        return _branch(source, toolset, "two", messages, _call(effort, second, "second"))
    results.append(_result(source, second, fails=stage > 0.94))
    messages += _done(effort, second, results[1], "second")
    answer = _reported(effort, [first, second], results)
    return _branch(source, toolset, "two", messages, answer)


BRANCHES: dict[str, Callable[[Source, Effort, Toolset], Branch | None]] = {
    **{role: partial(_single, role) for role in _ROLES},
    "two": _two,
    "agent_error": _error,
}


def _task(source: Source, toolset: Toolset, *roles: str) -> Task | None:
    """A task for one of the roles that the toolset has, more often for the shell."""
    present = [role for role in roles if role in toolset.abilities]
    if not present:
        return None
    role = source.choice(present)
    if "shell" in present and source.chance(0.3):
        role = "shell"
    return draw_task(source, toolset.abilities[role])


def _result(source: Source, task: Task, *, fails: bool) -> str:
    path = task.slots.get("path", "")
    return draw_failure(source, path) if fails else draw_result(source, task.role, path)


def _user(text: str) -> Message:
    return Message(role="user", content=text)


def _call(effort: Effort, task: Task, step: Step = "only") -> Answer:
    text = arguments_json(task.arguments)
    return Answer(text, call_analysis(effort, task, step), task.ability.tool.name)


def _reported(effort: Effort, tasks: Sequence[Task], results: Sequence[str]) -> Answer:
    return Answer(report(tasks, results), report_analysis(effort, tasks, results))


def _done(effort: Effort, task: Task, result: str, step: Step = "only") -> tuple[Message, Message]:
    """The call of a task in a running tool loop, which keeps what was thought."""
    reasoning = call_analysis(effort, task, step)
    return call_and_result(task.ability.tool.name, task.arguments, result, reasoning=reasoning)


def _branch(
    source: Source, toolset: Toolset, skill: str, messages: Sequence[Message], answer: Answer
) -> Branch:
    """Name the stage and, now and then, put finished exchanges before the messages."""
    earlier: list[Message] = []
    if source.chance(0.3):
        for _ in range(source.choice((1, 1, 2))):
            earlier += _finished(source, toolset)
    stage = "call" if answer.call else "report"
    return Branch(f"{skill}_{stage}", (*earlier, *messages), answer)


def _finished(source: Source, toolset: Toolset) -> list[Message]:
    """An earlier question with its answer, of which no analysis is left."""
    task = None if source.chance(0.25) else _task(source, toolset, *_ROLES)
    if task is None:
        question, answer = source.choice(BANK.CHATS)
        return [_user(question), Message(role="assistant", content=answer)]
    result = _result(source, task, fails=source.chance(0.1))
    final = Message(role="assistant", content=report([task], [result]))
    return [_user(request(source, task)), *_done("low", task, result), final]
