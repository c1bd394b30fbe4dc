"""The container's files, as tests read them."""

import re
import shlex
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "installers" / "container"
MARGIN_S = 10  # for the end of the engine, after the last answer


def read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, in order, without comments and line breaks."""
    text = (FOLDER / "Containerfile").read_text(encoding="utf-8")
    joined = re.sub(r"\\\n", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    return [(word, rest.strip()) for word, _, rest in map(_parted, joined.splitlines()) if word]


def _parted(line: str) -> tuple[str, str, str]:
    return line.partition(" ")


def last(wanted: str) -> str:
    return [rest for word, rest in instructions() if word == wanted][-1]


def image_variables() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in shlex.split(last("ENV")))


def added_on_the_page() -> list[str]:
    """The commands by which the page tells gptoss where a frontend is."""
    page = (ROOT / "docs" / "containers.md").read_text(encoding="utf-8")
    joined = re.sub(r"\\\n +", "", page)
    return re.findall(r"upstream add \w+ --kind dynamo --url \S+ --model \w+", joined)
