"""What agents put around the user's words: tags, the editor's state, listings, reminders."""

from collections.abc import Callable

from bench.nano.data import agent_environment as environment
from bench.nano.data.agent_prompt_fill import RULE_PATTERNS, Filler
from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("prompts")


_REMINDERS = ("system-reminder", "system_reminder", "reminder", "note", "important_rules")
Shape = Callable[[Filler, str], str]


def wrap(source: Source, text: str) -> str:
    """Put the user's words among what an agent adds to them, or leave them alone."""
    if source.chance(0.55):
        return text
    return source.choice(_SHAPES)(Filler(source, source.choice((5, 10, 30))), text)


def _details(filler: Filler) -> str:
    """An environment of 20 to 1,500 tokens."""
    source = filler.source
    n = source.choice((2, 3, 5, 8, 12, 20, 40, 90))
    parts: list[str] = []
    for kind in source.some(range(6), 1, 3):
        if kind == 0:
            parts.append(_facts(filler, min(n, 10)))
        elif kind == 1:
            parts.append(f"# {source.choice(BANK.LISTINGS)}\n{environment.listing(filler, n)}")
        elif kind == 2:
            parts.append(f"# Current Time\n{environment.clock(filler)}")
        elif kind == 3:
            parts.append(f"gitStatus: {environment.git_status(filler, min(n, 10))}")
        elif kind == 4:
            parts.append(f"# Context Window Usage\n{filler.value('n')} / 128K tokens used\n\n"
                         f"# Current Mode\n{filler.value('word').upper()} MODE")  # fmt: skip
        else:
            parts.append(_open_file(filler, n))
    return "\n\n".join(parts)


def _facts(filler: Filler, n: int) -> str:
    joint, mark = filler.source.choice(((": ", ""), (": ", "- "), (" = ", ""), (": ", "  ")))
    return "\n".join(f"{mark}{name}{joint}{v}" for name, v in environment.facts(filler, n))


def _open_file(filler: Filler, n: int) -> str:
    path, body = filler.value("path"), environment.code(filler, min(n, 60))
    style = filler.source.rng.randrange(4)
    if style == 0:
        return f"<file path=\"{path}\">\n{body}\n</file>"  # fmt: skip
    if style == 1:
        return f"Current file: {path}\n```\n{body}\n```"
    if style == 2:
        return f"{path}\n\n{environment.numbered(body, 1)}"
    return f"The user has {path} open, cursor in line {filler.value('n')}.\n\n```\n{body}\n```"


def _tagged(filler: Filler, text: str) -> str:
    tag = filler.source.choice(BANK.wrap_outer_names)
    return f"<{tag}>\n{text}\n</{tag}>"


def _block(filler: Filler) -> str:
    tag = filler.source.choice(BANK.DETAILS)
    return f"<{tag}>\n{_details(filler)}\n</{tag}>"


def _reminder(filler: Filler) -> str:
    tag = filler.source.choice(_REMINDERS)
    n = filler.source.rng.randint(1, 4)
    body = filler.source.choice((" ", "\n")).join(filler.one(RULE_PATTERNS) for _ in range(n))
    return f"<{tag}>\n{body}\n</{tag}>"


def _xml_context(filler: Filler) -> str:
    """As Codex has it."""
    value, source = filler.value, filler.source
    lines = [f"  <cwd>{value('dir')}</cwd>", f"  <shell>{source.choice(('bash', 'zsh'))}</shell>"]
    if source.chance(0.6):
        lines.insert(1, "  <approval_policy>on-request</approval_policy>\n"
                        f"  <sandbox_mode>{source.choice(('read-only', 'workspace-write'))}"
                        "</sandbox_mode>\n"
                        "  <network_access>restricted</network_access>")  # fmt: skip
    body = "\n".join(lines)
    return f"<environment_context>\n{body}\n</environment_context>"


def _title(filler: Filler) -> str:
    return filler.source.choice(BANK.TITLES).replace("{product}", filler.value("product"))


def _headed(mark: str) -> Shape:
    def shape(filler: Filler, text: str) -> str:
        before = filler.source.choice(BANK.BEFORE)
        return f"{mark}{before}\n{_details(filler)}\n\n{mark}{_title(filler)}\n{text}"

    return shape


def _query_with_data(filler: Filler, text: str) -> str:
    data = f"<additional_data>\n{_details(filler)}\n</additional_data>"
    return f"{data}\n\n<user_query>\n{text}\n</user_query>"


def _inline(filler: Filler, text: str) -> str:
    tag = filler.source.choice(BANK.wrap_outer_names)
    return f"<{tag}>{text}</{tag}>"


def _dated(filler: Filler, text: str) -> str:
    line = filler.source.choice(("Today is {}.", "[{}]", "Date: {}", "Current date: {}", "({})"))
    return f"{line.format(environment.date(filler))}\n\n{text}"


def _agents_md(filler: Filler, text: str) -> str:
    n = filler.source.rng.randint(2, 12)
    rules = "\n".join(f"- {filler.one(RULE_PATTERNS)}" for _ in range(n))
    head = f"# AGENTS.md instructions for {filler.value('dir')}\n\n<INSTRUCTIONS>\n{rules}"
    return f"{head}\n</INSTRUCTIONS>\n\n{_xml_context(filler)}\n\n{text}"


def _attached(filler: Filler, text: str) -> str:
    n = filler.source.choice((3, 10, 30))
    return f"{_open_file(filler, n)}\n\n{_tagged(filler, text)}"


def _files_in_chat(filler: Filler, text: str) -> str:
    head = filler.source.choice((
        "Here are summaries of some files in the repository.", "I have added these files.",
        "These files are open in my editor:", "The workspace has the following structure:",
        "Visible in the editor at the moment:", "Some context on my workspace:",
    ))  # fmt: skip
    body = environment.listing(filler, filler.source.choice((3, 8, 25)))
    return f"{head}\n\n{body}\n\n{_title(filler)}:\n{text}"


_SHAPES: tuple[Shape, ...] = (
    lambda f, t: f"{_tagged(f, t)}\n\n<environment_details>\n{_details(f)}\n</environment_details>",
    lambda f, t: f"<task>\n{t}\n</task>\n\n<environment_details>\n{_details(f)}\n"
                 "</environment_details>",
    _tagged,
    lambda f, t: f"<user_message>\n{t}\n</user_message>",
    lambda f, t: f"{_reminder(f)}\n{t}",
    lambda f, t: f"{_reminder(f)}\n\n{_block(f)}\n\n{t}",
    lambda f, t: f"{t}\n\n{_reminder(f)}",
    lambda f, t: f"{t}\n\n{_block(f)}",
    lambda f, t: f"{_block(f)}\n\n{_tagged(f, t)}",
    lambda f, t: f"{_block(f)}\n\n{t}",
    lambda f, t: f"{_block(f)}\n{_reminder(f)}\n{_tagged(f, t)}",
    _headed("# "),
    _headed("## "),
    _headed("### "),
    _query_with_data,
    _inline,
    lambda f, t: f"<user_query>\n{t}\n</user_query>",
    _dated,
    lambda f, t: f"[User] {t}",
    lambda f, t: f"User: {t}",
    lambda f, t: f"[User message]\n{t}",
    lambda f, t: f"{_xml_context(f)}\n\n{t}",
    lambda f, t: f"{_xml_context(f)}\n\n{_tagged(f, t)}",
    _agents_md,
    _attached,
    _files_in_chat,
    lambda f, t: f"{_details(f)}\n\n---\n\n{_title(f)}:\n{t}",
    lambda f, t: f"<context>\n{_details(f)}\n</context>\n\n<reminderInstructions>\n"
                 f"{f.one(RULE_PATTERNS)}\n</reminderInstructions>\n<userRequest>\n{t}\n</userRequest>",
    lambda f, t: f"{_tagged(f, t)}\n\n{_reminder(f)}\n{_block(f)}",
)  # fmt: skip
