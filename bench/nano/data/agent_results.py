"""What tools of a coding agent answer; how it begins tells whether the tool has failed."""

import json

from bench.nano.data.agent_values import draw_file, draw_json, draw_text
from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("results")
WORDS = banks("words")


def looks_failed(result: str) -> bool:
    """Whether a result begins as only failures do."""
    return result.lstrip().lower().startswith(BANK.FAILURE_STARTS) and not _is_zero_exit(result)


def _is_zero_exit(result: str) -> bool:
    return result.startswith(("Exit code: 0\n", "Exit code 0\n"))


def draw_result(source: Source, role: str, path: str) -> str:
    """What the tool of a role answers when all went well.

    Args:
        path: The file or folder of the call; empty for the others.
    """
    draw = {
        "shell": _shell, "create": _created, "read": _read, "edit": _edited, "list": _listing,
        "search": _matches,
    }[role]  # fmt: skip
    while True:
        result = draw(source, path)
        if not looks_failed(result):
            return result + ("\n" if result and source.chance(0.15) else "")


def draw_failure(source: Source, path: str) -> str:
    """What a tool answers when the call has failed."""
    slots = {
        "word": source.identifier(), "path": path or source.path(),
        "n": source.rng.randrange(1, 256),
        "name": source.invented().capitalize(), "text": source.line(),
    }  # fmt: skip
    message = source.choice(BANK.MESSAGES).format(**slots)
    return source.choice(BANK.FAILED).format(message=message.replace('"', ""), **slots)


def _shell(source: Source, _path: str) -> str:
    kind = source.rng.random()
    if kind < 0.1:
        return "" if kind < 0.08 else "\n"
    body = _output(source)
    if kind < 0.65:
        return body
    milliseconds = source.rng.randrange(5000)
    wraps = (
        f"<result>\n{body}\n</result>", f"Command executed.\nOutput:\n{body}",
        f"Exit code: 0\n{body}",
        f"Exit code: 0\nOutput:\n{body}", f"<output>{body}</output>", f"stdout:\n{body}\nstderr:\n",
        json.dumps({"output": body, "exit_code": 0}), f"{body}\n(took {milliseconds} ms)",
        json.dumps({"output": body, "metadata": {"exit_code": 0}}, ensure_ascii=False),
        json.dumps({"stdout": body, "stderr": "", "code": 0}, ensure_ascii=False, indent=2),
        f"Wall time: {milliseconds / 1000} seconds\nProcess exited with code 0\nOutput:\n{body}",
        f"$\n{body}\n$", f"<stdout>\n{body}\n</stdout>\n<stderr></stderr>", f"[exit 0]\n{body}",
    )  # fmt: skip
    return source.choice(wraps)


def _output(source: Source) -> str:
    """What a program prints: up to 40 lines."""
    kind = source.rng.randrange(9)
    n = source.choice((1, 1, 2, 3, 5, 8, 16, 40))
    if kind <= 2:
        return source.line()
    if kind == 3:
        return "\n".join(source.line() for _ in range(min(n, 12)))
    if kind == 4:
        return _listing(source, "")
    if kind == 5:
        return draw_json(source, indent=source.choice((None, None, 2)))
    if kind == 6:
        return "\n".join(_log_line(source) for _ in range(n))
    if kind == 7:
        return draw_text(source, 12)
    passed = [f"{source.path()} {'.' * source.rng.randint(1, 30)}" for _ in range(min(n, 8))]
    return "\n".join([*passed, "", f"{source.rng.randrange(500)} passed in 0.{n}s"])


def _log_line(source: Source) -> str:
    clock = f"{source.rng.randrange(24):02}:{source.rng.randrange(60):02}"
    level = source.choice(("INFO", "DEBUG", "WARN"))
    return f"{clock} {level} {source.identifier()}: {source.rng.randrange(10000)}"


def _created(source: Source, path: str) -> str:
    return _message(source, BANK.WRITTEN, path)


def _edited(source: Source, path: str) -> str:
    return _message(source, BANK.CHANGED, path)


def _message(source: Source, templates: tuple[str, ...], path: str) -> str:
    template = source.choice(templates)
    code = source.code(source.rng.randint(1, 5)) if "{code}" in template else ""
    return template.format(
        path=path,
        name=path.replace("\\", "/"),
        n=source.rng.randrange(1, 5000),
        word=source.invented(),
        code=_numbered(source, code),
    )


def _read(source: Source, path: str) -> str:
    if source.chance(0.04):
        return ""
    body = draw_text(source, source.choice((3, 8, 15, 40)))
    kind = source.rng.random()
    if kind < 0.55:
        return body
    if kind < 0.85:
        return _numbered(source, body)
    wraps = (
        f"<file>\n{_numbered(source, body)}\n</file>", f"<content>\n{body}\n</content>",
        f"{path}:\n{body}",
        f'<file path="{path}">\n{body}\n</file>', json.dumps({"content": body}, ensure_ascii=False),
        f"Here's the result of running `cat -n` on {path}:\n{_numbered(source, body)}",
        json.dumps({"path": path, "lines": body.split("\n")}), f"--- {path} ---\n{body}",
    )  # fmt: skip
    return source.choice(wraps)


def _numbered(source: Source, text: str) -> str:
    """The text as editors show it, with the number of each line before it."""
    pattern = source.choice(("{:>6}\t{}", "{}: {}", "{:>5}→{}", "{:05}| {}", "{} | {}", "L{}: {}"))
    first = 1 if source.chance(0.8) else source.rng.randrange(1, 500)
    return "\n".join(pattern.format(i, line) for i, line in enumerate(text.split("\n"), first))


def _listing(source: Source, path: str) -> str:
    if path and source.chance(0.05):
        return ""
    n = source.choice((1, 2, 3, 5, 8, 13, 25))
    names = [draw_file(source).replace("\\", "/").split("/")[-1] for _ in range(n)]
    names = [source.choice(WORDS.FOLDERS) + "/" if source.chance(0.25) else name for name in names]
    kind = source.rng.randrange(8)
    if kind <= 2:
        return "\n".join(names)
    if kind == 3:
        return json.dumps(names, ensure_ascii=False)
    if kind == 4:
        entries = [{"name": name, "size": source.rng.randrange(100000)} for name in names[:8]]
        return json.dumps({"entries": entries}, ensure_ascii=False)
    if kind == 5:
        return "\n".join(f"[{'DIR' if name.endswith('/') else 'FILE'}] {name}" for name in names)
    if kind == 6:
        rows = (f"-rw-r--r-- 1 dev dev {source.rng.randrange(99999):>6} {name}" for name in names)
        return f"total {n}\n" + "\n".join(rows)
    return f"- {path or '.'}\n" + "\n".join(f"  - {name}" for name in names)


def _matches(source: Source, path: str) -> str:
    kind = source.rng.random()
    if kind < 0.12:
        return ""
    files = [draw_file(source) for _ in range(source.rng.choice((1, 1, 2, 4, 8)))]
    if kind < 0.3:
        return "\n".join(files)
    rows = [f"{name}:{source.rng.randrange(1, 900)}:{source.code(1)}" for name in files]
    if kind < 0.75:
        return "\n".join(rows)
    if kind < 0.85:
        return f"Found {len(files)} file{'s' if len(files) > 1 else ''}\n" + "\n".join(files)
    if kind < 0.93:
        return json.dumps({"matches": files, "truncated": False}, ensure_ascii=False)
    return f"Found {len(rows)} matches in {path or '.'}\n" + "\n".join(rows)
