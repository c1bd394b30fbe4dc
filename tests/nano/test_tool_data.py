"""The calls that nano is trained on: what the declared schemas ask for, in all shapes they have."""

import json
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from bench.nano.data import (
    agent_edit_phrasings,
    agent_file_phrasings,
    agent_phrasings,
    functions,
    response_format,
)
from bench.nano.data.agent_requests import draw_task
from bench.nano.data.agent_tools import SLOTS, draw_ability, draw_editor
from bench.nano.data.agent_two_phrasings import (
    BLOCK_JOINS,
    CLAUSES,
    CREATE_BLOCK,
    JOINS,
    OTHER_JOINS,
)
from bench.nano.data.agent_wording import Bank
from bench.nano.data.document import Branch
from bench.nano.data.functions_invented import draw_invented_ability
from bench.nano.data.mixture import draw
from bench.nano.data.source import Source
from bench.nano.data.wording import _allowed
from gptoss_local.harmony.message import Tool
from tests.json_schema import satisfies
from tests.nano.test_edit_data import words_of

N_DOCUMENTS = 120
_ANNOTATIONS = ("description", "default", "$schema")


def calls(held_out: bool) -> Iterator[tuple[Tool, Branch]]:
    source = Source(21, held_out=held_out)
    for _ in range(N_DOCUMENTS):
        document = draw(source)
        by_name = {tool.name: tool for tool in document.tools}
        for branch in document.branches:
            if branch.answer.call:
                yield by_name[branch.answer.call], branch


def bare(schema: Any) -> Any:
    """The schema without what only explains; properties may be called like that, too."""
    if isinstance(schema, list):
        return [bare(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in _ANNOTATIONS}
    return {
        key: {name: bare(part) for name, part in value.items()}
        if key == "properties"
        else bare(value)
        for key, value in kept.items()
    }


@pytest.mark.parametrize("held_out", [False, True])
def test_every_call_satisfies_its_schema(held_out: bool) -> None:
    n = 0
    for tool, branch in calls(held_out):
        n += 1
        schema = bare(tool.parameters or {"type": "object"})
        assert satisfies(json.loads(branch.answer.text), schema), (tool, branch.answer)
    assert n > N_DOCUMENTS


@pytest.mark.parametrize("role", SLOTS)
def test_tools_of_every_role_may_take_objects(role: str) -> None:
    """In a list and alone; what the user gives is somewhere within."""
    source, shapes = Source(22), Counter[str]()
    for _ in range(400):
        ability = draw_ability(source, role, ())
        task = draw_task(source, ability)
        for value in task.arguments.values():
            shapes["list"] += isinstance(value, list) and isinstance(value[0], dict)
            shapes["object"] += isinstance(value, dict)
        text = json.dumps(task.arguments)
        assert all(json.dumps(slot)[1:-1] in text for slot in task.slots.values())
    assert shapes["object"] > 8
    assert shapes["list"] > 8


def test_an_editor_replaces_and_creates() -> None:
    source = Source(23)
    for _ in range(50):
        edit, create = draw_editor(source, ())
        assert edit.tool is create.tool
        old = next(iter(set(edit.fill(draw_task(source, edit).slots)) - set(
            create.fill(draw_task(source, create).slots))))  # fmt: skip
        assert old not in edit.tool.parameters["required"]


def test_functions_nest_what_users_say_plainly() -> None:
    source, shapes = Source(24), Counter[str]()
    for _ in range(300):
        for ability in functions.draw_functions(source):
            request = ability.ask(source, False)
            for value in ability.fill(request.slots).values():
                shapes["objects"] += isinstance(value, list) and isinstance(value[0], dict)
                shapes["object"] += isinstance(value, dict)
    assert shapes["object"] > 30
    assert shapes["objects"] > 30


def test_invented_functions_take_objects_in_objects() -> None:
    source = Source(25)
    declared = [
        json.dumps(draw_invented_ability(source, "invented").tool.parameters) for _ in range(300)
    ]
    n_deep = sum(text.count('"properties"') > 2 for text in declared)
    n_lists = sum('"array", "items": {"type": "object"' in text for text in declared)
    assert n_deep > 15
    assert n_lists > 15


def test_beside_a_told_schema_actions_are_calls_and_data_is_in_the_format() -> None:
    source, kinds = Source(26), Counter[str]()
    for _ in range(30):
        document = response_format.DOCUMENTS["tool_format"](source, "low")
        assert document.format
        for branch in document.branches:
            assert not branch.opens_final  # the server never does with tools
            last = branch.messages[-1]
            if branch.answer.call:
                kinds["call"] += 1
                assert branch.answer.call in {tool.name for tool in document.tools}
                continue
            kinds[f"data of the {last.role}"] += 1
            answer = json.loads(branch.answer.text)
            assert satisfies(answer, bare(document.format.schema))
            text = last.content.lower()
            told = [v for v in answer.values() if isinstance(v, int) and not isinstance(v, bool)]
            assert all(str(value) in text.replace(",", "") for value in told)
    assert min(kinds[k] for k in ("call", "data of the user", "data of the tool")) > 5


@pytest.mark.parametrize("module", [agent_edit_phrasings, agent_file_phrasings, agent_phrasings])
def test_training_has_seen_most_words_of_held_out_requests(module: ModuleType) -> None:
    """A phrasing that stands alone is another language to the model."""
    for name, bank in vars(module).items():
        if isinstance(bank, Bank):
            for templates in (bank.asks, bank.others):
                trained = words_of(_allowed(templates, False))
                assert words_of(_allowed(templates, True)) <= trained, name


def test_training_has_seen_the_words_of_two_requests_in_one() -> None:
    for templates in (*CLAUSES.values(), CREATE_BLOCK, JOINS, OTHER_JOINS, BLOCK_JOINS):
        held_out = _allowed(templates, True)
        assert len(held_out) > 1
        assert words_of(held_out) <= words_of(_allowed(templates, False))
