"""Show a whole call of a tool before the user allows it."""

import re
import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from gptoss_local.base.printable import in_order, visible
from gptoss_local.talk.tools import Arguments, RunnableTool
from gptoss_local.talk.tools.tool import Kind, Scope

_LINE_ENDS = re.compile(r"(\n+)")
_TAB = 4


class CallPart(NamedTuple):
    """Code, or a command line, or the arguments of a call; `text` is safe to show."""

    kind: Kind
    text: str


def what_runs(tool: RunnableTool, arguments: Arguments) -> list[CallPart]:
    """Return the code, command line and arguments of a call, after `RunnableTool.resolve`."""
    if tool.shows is not None:
        kind, name = tool.shows
        if kind == "diff":
            return [CallPart(kind, in_order("\n".join(map(_changed, arguments[name].split("\n")))))]
        return [CallPart(kind, in_order("$ " * (kind == "command") + seen(arguments[name])))]
    if (code := code_of(tool.name, arguments)) is not None and tool.argv is None:
        return [CallPart("code", in_order(seen(code)))]
    given = CallPart("arguments", in_order(pretty(arguments)))
    if tool.argv is None:
        return [given]
    return [CallPart("command", in_order(f"$ {shell_text(tool.argv(arguments))}")), given]


def code_of(name: str, arguments: object) -> str | None:
    if name == "python" and isinstance(arguments, dict) and list(arguments) == ["code"]:
        return arguments["code"] if isinstance(arguments["code"], str) else None
    return None


class Decision(NamedTuple):
    """The user's answer to whether a call may run; no `scope` denies it."""

    scope: Scope | Literal["once"] | None
    reason: str = ""


class Choice(NamedTuple):
    """A choice when asked whether a call may run: no `scope` denies it, maybe with a reason."""

    label: str
    scope: Scope | Literal["once"] | None
    has_reason: bool = False


def answers_to(tool: RunnableTool) -> list[Choice]:
    """Return the answers in the order in which they are shown; Enter takes the first one."""
    lasting = [
        Choice("Allow in this chat", "chat"),
        Choice(f"Always allow {always_text(tool)}", "always"),
    ]
    return [
        Choice("No", None),
        Choice("No, because …", None, has_reason=True),
        Choice("Allow once", "once"),
        *(choice for choice in lasting if choice.scope in tool.lasting),
    ]


async def decide(
    tool: RunnableTool,
    choose: Callable[[str, list[str]], Awaitable[int | None]],
    reason: Callable[[], Awaitable[str]],
    n_unseen: Callable[[], int] = lambda: 0,
) -> Decision | None:
    """Ask about a call, again if an answer allows more than was shown; None: no answer.

    `choose` gets a text and the labels to choose from, `reason` asks why not, and `n_unseen` says
    how many lines of the call were never on the screen.
    """
    choices = answers_to(tool)
    while (n := await choose(asked_text(tool), [each.label for each in choices])) is not None:
        label, scope, has_reason = choices[n]
        if scope is None:
            return Decision(None, await reason() if has_reason else "")
        if not (text := doubt(choices[n], n_unseen())):
            return Decision(scope)
        if (is_sure := await choose(text, [choices[0].label, label])) is None:
            break
        if is_sure:
            return Decision(scope)
    return None


def doubt(answer: Choice, n_unseen: int = 0) -> str:
    """Return why an answer is asked for twice, such as lines never shown; empty if it is not."""
    doubts = []
    if n_unseen:
        lines = "1 line was" if n_unseen == 1 else f"{n_unseen:,} lines were"
        doubts.append(f"{lines} never on the screen.")
    if answer.scope in ("chat", "always"):
        doubts.append("Its next calls run without a question.")
    return " ".join([*doubts, "Are you sure?"]) if doubts else ""


def asked_text(tool: RunnableTool) -> str:
    return f"The model asks to run {tool.name}. It {about_text(tool)}."


def about_text(tool: RunnableTool) -> str:
    return in_order(visible(tool.about))


def always_text(tool: RunnableTool) -> str:
    of = "" if tool.source in ("", tool.name) else f" of {tool.source}"
    return in_order(visible(f"this tool{of}"))


def seen(code: str) -> str:
    """Return code for reading: escapes for invisible characters, spaces for tabs."""
    return "\n".join(visible(line.expandtabs(_TAB)) for line in code.split("\n"))


def _changed(line: str) -> str:
    """Return a line of a diff, where arrows and dots are the tabs and the spaces that change."""
    sign, text = line[:1], line[1:]
    if sign in ("+", "-"):
        text = text.replace("\t", "→\t")
        text = text.rstrip(" ") + "·" * (len(text) - len(text.rstrip(" ")))
    return sign + seen(text)


def shell_text(argv: Sequence[str]) -> str:
    r"""Return a command line for a shell, with invisible characters as escapes: `$'one\n'`."""
    return " ".join(map(_word, argv))


def _word(word: str) -> str:
    if visible(word) == word:
        return shlex.quote(word)
    pieces = _LINE_ENDS.split(word)  # texts, and between them line ends
    texts = [visible(text.replace("\\", "\\\\").replace("'", "\\'")) for text in pieces[::2]]
    ends = [len(ends) * r"\n" for ends in pieces[1::2]]
    rows = [text + end for text, end in zip(texts, [*ends, ""], strict=True)]
    if not rows[-1]:
        rows.pop()
    return "$'" + "\n".join(rows) + "'"


def pretty(arguments: object) -> str:
    """Return JSON for reading, with escapes for invisible characters."""
    text = msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()
    return "\n".join(map(visible, text.split("\n")))
