"""What a coding agent thinks before a call and after its result, and how it reports the result."""

from collections.abc import Sequence
from typing import Literal

from bench.nano.data.agent_requests import Task
from bench.nano.data.agent_results import looks_failed
from gptoss_local.types import Effort

Step = Literal["only", "first", "second"]
_PURPOSES = {
    "shell": "run the command", "create": "create the file", "read": "read the file",
    "edit": "edit the file", "list": "list the folder", "search": "search the files",
}  # fmt: skip
_MAIN = {"shell": ("command", "command"), "search": ("text", "pattern"), "list": ("folder", "path")}
_LONGEST_VALUE = 40  # characters that an analysis repeats


def call_analysis(effort: Effort, task: Task, step: Step = "only") -> str:
    """What to think before the call of a task."""
    purpose, tool = _PURPOSES[task.role], task.ability.tool.name
    if effort == "low":
        return ""
    if effort == "medium":
        starts = {"only": "I", "first": "First I", "second": "The first step is done. Now I"}
        return f"{starts[step]} should {purpose} with `{tool}`."
    start = {
        "only": f"The user wants me to {purpose}.",
        "first": f"The user asks for two things. First I {purpose}.",
        "second": f"The first step is done. Now I {purpose}.",
    }[step]
    word, slot = _MAIN.get(task.role, ("path", "path"))
    value = task.slots[slot]
    short = len(value) <= _LONGEST_VALUE and "`" not in value and "\n" not in value
    told = f" The {word} is `{value}`." if short else ""
    names = ", ".join(f"`{name}`" for name in task.arguments)
    return (
        f"{start}{told} My tool for this is `{tool}`. I fill {names}. "
        "I copy the text exactly as it is given."
    )


def report_analysis(effort: Effort, tasks: Sequence[Task], results: Sequence[str]) -> str:
    """What to think after the last result."""
    if effort == "low":
        return ""
    tool, role, result = tasks[-1].ability.tool.name, tasks[-1].role, results[-1]
    if looks_failed(result):
        short, long = "The tool failed, so I report the error.", "The result is an error."
        end = "I tell the user that it failed and show the error as it is."
    elif len(results) > 1:
        short, long = "Both steps are done, so I report both.", "Both steps are done."
        end = "I report the first result and then the second, exactly as they are."
    elif role in ("create", "edit"):
        short, long = "The tool is done, so I confirm it.", "It did not fail."
        end = "I confirm it in one short sentence."
    elif not result.strip():
        short, long = "The result is empty, so I say so.", "The result is empty."
        end = "I say that there is nothing."
    else:
        short, long = "The tool answered, so I report the result.", "The result is not an error."
        end = "I report it exactly as it is, in a code block."
    if effort == "medium":
        return short
    return f"I was asked to {_PURPOSES[role]}. I called `{tool}` and it answered. {long} {end}"


def report(tasks: Sequence[Task], results: Sequence[str]) -> str:
    """The final text for the results so far."""
    return "\n\n".join(map(_report_one, tasks, results))


def _report_one(task: Task, result: str) -> str:
    shown = result.rstrip("\n")
    block = f"\n\n```\n{shown}\n```"
    path = f"`{task.slots.get('path', '')}`"
    if looks_failed(result):
        return f"That failed:{block}"
    if task.role == "create":
        return f"I created {path}."
    if task.role == "edit":
        return f"I changed {path}."
    empty = not shown.strip()
    if task.role == "shell":
        return "The command printed nothing." if empty else f"The command printed:{block}"
    if task.role == "search":
        return "I found nothing." if empty else f"I found:{block}"
    return f"{path} is empty." if empty else f"{path} contains:{block}"
