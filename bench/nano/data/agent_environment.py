"""What agents tell a model of the machine around it: folders, files, time, the state of git."""

from bench.nano.data.agent_prompt_fill import CODE_PATTERNS, LOG_PATTERNS, Filler
from bench.nano.phrases import banks

BANK = banks("prompts")
WORDS = banks("words")

_SHELLS = ("bash", "zsh", "/bin/bash", "/bin/zsh", "fish", "powershell.exe", "sh", "/usr/bin/fish")
_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "UTC+2:00", "GMT")
_STATES = ("M", "A", "D", "??", "R", "MM", " M", "AM")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MODES = ("act", "ACT MODE", "PLAN MODE", "agent", "code", "default", "auto", "workspace-write")


def date(filler: Filler) -> str:
    """A day, in one of a few spellings."""
    rng = filler.source.rng
    year, month, day = rng.randrange(2023, 2031), rng.randrange(1, 13), rng.randrange(1, 29)
    return rng.choice((f"{year}-{month:02d}-{day:02d}", f"{month}/{day}/{year}",
                       f"{rng.choice(_DAYS)}, {day:02d}.{month:02d}.{year}"))  # fmt: skip


def clock(filler: Filler) -> str:
    """A day and a time."""
    rng = filler.source.rng
    time = f"{rng.randrange(24):02d}:{rng.randrange(60):02d}"
    return f"{date(filler)}, {time}{rng.choice(('', ':00', ' (UTC)', ' (Europe/Paris, UTC+1:00)'))}"


def facts(filler: Filler, n: int) -> list[tuple[str, str]]:
    """Names and values such as an environment block lists, at most `n`."""
    source, value = filler.source, filler.value
    number = value("n")
    options = [
        ("Working directory", value("dir")), ("Platform", source.choice(BANK.SYSTEMS)),
        ("Shell", source.choice(_SHELLS)), ("Date", date(filler)), ("User", value("word")),
        ("Home directory", f"/home/{value('word')}"), ("Is git repository", source.choice(
            ("Yes", "No", "true", "false"))), ("Timezone", source.choice(_ZONES)),
        ("Branch", value("word")), ("Editor", value("product")), ("Mode", source.choice(_MODES)),
        ("Version", f"{value('d')}.{value('d')}.{number}"), ("Language", value("lang")),
        ("Context used", f"{number} tokens ({value('d')}%)"), ("Model", value("word")),
        ("Current time", clock(filler)), ("Terminal", f"{value('d')} running"),
        ("Sandbox", source.choice(("read-only", "workspace-write", "off"))),
    ]  # fmt: skip
    return source.some(options, min(n, 2), n)


def files(filler: Filler, n: int) -> list[str]:
    """Some paths, sorted as a listing has them."""
    return sorted({filler.value("path") for _ in range(n)})


def listing(filler: Filler, n: int) -> str:
    """File names below each other: as a tree, as `ls -la`, or just names."""
    rng = filler.source.rng
    style = rng.randrange(4)
    if style == 0:
        return "\n".join(files(filler, n))
    if style == 1:
        return "\n".join(_long_line(filler) for _ in range(n))
    marks = ("├── ", "│   ├── ", "│   └── ", "└── ") if style == 2 else ("- ", "  - ", "    - ", "")
    folders = [f"{marks[0]}{rng.choice(WORDS.FOLDERS)}/"]
    for _ in range(n):
        deep = rng.random()
        if deep < 0.15:
            folders.append(f"{marks[0]}{rng.choice(WORDS.FOLDERS)}/")
        else:
            folders.append(f"{marks[1 if deep < 0.7 else 2 if deep < 0.85 else 3]}{_name(filler)}")
    return "\n".join(folders)


def _name(filler: Filler) -> str:
    stem = filler.value("word" if filler.random() < 0.5 else "ident")
    return f"{stem}.{filler.source.choice(WORDS.EXTENSIONS)}"


def _long_line(filler: Filler) -> str:
    size, user, day = filler.value("n"), filler.value("word"), filler.value("d")
    return f"-rw-r--r-- 1 {user} {user} {size:>6} May {day:>2} 12:0{day} {_name(filler)}"


def git_status(filler: Filler, n: int) -> str:
    """A branch, changed files, commits."""
    source = filler.source
    changed = [f"{source.choice(_STATES)} {filler.value('path')}" for _ in range(n)]
    commits = [
        f"{source.rng.randrange(16**7):07x} {filler.value('verb').capitalize()} the "
        f"{filler.value('adj')} {filler.value('noun')}"
        for _ in range(n)
    ]
    parts = [f"Current branch: {filler.value('word')}", "Status:", *changed, "", "Recent commits:"]
    return "\n".join([*parts, *commits])


def code(filler: Filler, n: int) -> str:
    """Lines of code with plausible indentation."""
    lines: list[str] = []
    depth = 0
    for _ in range(n):
        line = filler.one(CODE_PATTERNS)
        lines.append("    " * depth + line)
        if line.endswith(":"):
            depth = min(depth + 1, 4)
        elif filler.random() < 0.25:
            depth = max(depth - 1, 0)
    return "\n".join(lines)


def log(filler: Filler, n: int) -> str:
    """Lines that programs print."""
    return "\n".join(filler.one(LOG_PATTERNS) for _ in range(n))


def numbered(text: str, first: int) -> str:
    """Text with line numbers, as tools show files."""
    return "\n".join(f"{i:>6}\t{line}" for i, line in enumerate(text.split("\n"), first))
