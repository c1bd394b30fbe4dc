"""Checks of the documentation without running it: links, fences, options, variables."""

import functools
import json
import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from typer.testing import CliRunner

from gptoss_local.base.settings import PASSPHRASE, Settings
from gptoss_local.cli.main import make_app
from tests.docs.pages import PAGES, ROOT, Block, anchors, blocks, links, prose

BLOCKS = [block for page in PAGES for block in blocks(page)]
PARSERS = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}
LANGUAGES = {"sh", "python", "js", "console", "powershell", "text", *PARSERS}
NOT_RUN = ("console", "powershell")
VARIABLES = {f"GPTOSS_{name.upper()}" for name in Settings.__struct_fields__}
VARIABLES |= {"GPTOSS_DEBUG", PASSPHRASE}


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_block(block: Block) -> None:
    """A block is run by a test, parsed by one, or says why it is not."""
    assert block.language in LANGUAGES
    assert set(block.notes) <= {"prints", "not run", "client", "file"}
    assert (block.language in NOT_RUN) == bool(block.notes.get("not run"))
    if parse := PARSERS.get(block.language):
        parse(block.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page: Path) -> None:
    for link in links(page):
        target, _, anchor = unquote(link).partition("#")
        if not re.match(r"[a-z]+:", target):
            file = (page.parent / target).resolve() if target else page
            assert file.exists(), link
            assert not anchor or anchor in anchors(file), link


def test_every_page_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    assert {page.name for page in PAGES if page.parent == index.parent} - {index.name} <= set(
        links(index)
    )


def test_docs_are_short() -> None:
    pages = (page for page in PAGES if (ROOT / "docs") in page.parents)
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 20_000


def test_every_bench_is_in_its_table() -> None:
    bench = ROOT / "bench"
    named = re.findall(r"`(\w+\.py)`", (bench / "README.md").read_text(encoding="utf-8"))
    assert set(named) == {path.name for path in bench.glob("*.py")}


@functools.cache
def help_of(command: str) -> str:
    done = CliRunner().invoke(make_app(), [command, "--help"])
    assert done.exit_code == 0, f"gptoss {command}"
    return done.output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_are_there(page: Path) -> None:
    """Also in blocks that no test runs."""
    code = re.findall(r"`([^`]+)`", prose(page)) + [block.text for block in blocks(page)]
    for command, rest in re.findall(r"\bgptoss (?!gptoss )([a-z]+)\b([^|;&#\n]*)", "\n".join(code)):
        shown = help_of(command)
        unquoted = re.sub(r'"[^"]*"|\'[^\']*\'', "", rest)
        for option in re.findall(r"(?<=\s)--?[a-z][a-z-]*", unquoted):
            assert re.search(rf"(?<![\w-]){option}\b", shown), f"gptoss {command} {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_variables_are_settings(page: Path) -> None:
    assert set(re.findall(r"GPTOSS_[A-Z_]*[A-Z]", page.read_text(encoding="utf-8"))) <= VARIABLES
