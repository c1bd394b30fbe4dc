"""Models that carry a system message, options and messages: made, shown, used, copied, removed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest

from gptoss_local.harmony import Vocabulary
from tests.conftest import RunningServer, run_server
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server.dialects import NAMES, speak, user

SECRET = "Remember this: the passcode is quiet-river-42."
QUESTION = [user("What is the passcode?")]
TOLD = [user("What is the capital of France?"), {"role": "assistant", "content": "It is Paris."}]
BRIEF = {"role": "system", "content": "Be brief."}
Sdk = ollama.Client


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, nano_home: Path) -> Path:
    home = tmp_path_factory.mktemp("defaults")
    (home / "cache").symlink_to(nano_home / "cache")
    return home


@pytest.fixture(scope="module")
def script(vocabulary: Vocabulary) -> Script:
    script = Script(vocabulary)
    script.otherwise(answer("The passcode is quiet-river-42. Paris."))
    return script


@pytest.fixture(scope="module")
def home_server(home: Path, script: Script) -> Iterator[RunningServer]:
    with run_scripted_server(home, script, context_length="2048") as running:
        yield running


@pytest.fixture
def sdk(home_server: RunningServer) -> Iterator[Sdk]:
    with ollama.Client(home_server.url, trust_env=False) as client:
        yield client
        for model in client.list().models:
            if model.model and model.model != "nano":
                client.delete(model.model)
        assert not list((home_server.home / "models").rglob("*.gguf"))
        assert not list((home_server.home / "models").rglob("*.json"))


Prompt = Callable[..., str]


@pytest.fixture
def prompt(sdk: Sdk, script: Script) -> Prompt:
    """A function that asks a model, and returns its prompt."""

    def ask(model: str, messages: list[dict[str, str]] = QUESTION, **generate: Any) -> str:
        if generate:
            sdk.generate(model, **generate)
        else:
            sdk.chat(model, messages)
        return str(script.vocabulary.encoding.decode(script.prompts[-1]))

    return ask


def test_a_system_message_and_messages(sdk: Sdk, prompt: Prompt) -> None:
    """A request that has a system message keeps that alone."""
    statuses = [s.status for s in sdk.create("guard", from_="nano", system=SECRET, stream=True)]
    assert statuses == ["writing manifest", "success"]
    sdk.create("primed", from_="nano", messages=TOLD, system="Be brief.")
    told = {"role": "system", "content": SECRET}
    assert prompt("guard") == prompt("nano", [told, *QUESTION])
    assert prompt("guard", prompt=QUESTION[0]["content"]) == prompt("guard")
    assert prompt("guard", [BRIEF, *QUESTION]) == prompt("nano", [BRIEF, *QUESTION])
    assert prompt("primed") == prompt("nano", [BRIEF, *TOLD, *QUESTION])
    assert prompt("primed", [told, *QUESTION]) == prompt("nano", [told, *TOLD, *QUESTION])
    context = sdk.generate("guard", "hi").context
    for own in ({"system": "Be brief."}, {"raw": True}, {"context": context}):
        assert prompt("guard", prompt="hi", **own) == prompt("nano", prompt="hi", **own)


def test_parameters_apply_and_a_request_wins(sdk: Sdk) -> None:
    sdk.create("short", from_="nano", parameters={"num_predict": 3, "temperature": 0, "seed": 7})
    reply = sdk.chat("short", QUESTION)
    assert (reply.eval_count, reply.done_reason) == (3, "length")
    assert sdk.chat("short", QUESTION, options={"num_predict": 5}).eval_count == 5
    sdk.create("quiet", from_="nano", parameters={"stop": ["Paris"], "temperature": 0})
    assert "Paris" not in (sdk.chat("quiet", QUESTION).message.content or "")
    assert "Paris" in (sdk.chat("quiet", QUESTION, options={"stop": []}).message.content or "")


def test_weights_are_loaded_once_with_the_num_ctx_of_the_model(home: Path) -> None:
    with run_server(home, context_length="2048") as server, ollama.Client(server.url) as sdk:
        sdk.create("one", from_="nano", system="One.")
        sdk.create("long", from_="nano", parameters={"num_ctx": 4096})
        sdk.copy("one", "two")
        engines = []
        for name in ("nano", "one", "two", "nano"):
            sdk.chat(name, QUESTION, options={"num_predict": 1})
            engines.append(server.engine())
            assert [model.name for model in sdk.ps().models] == [name]
        assert engines[0] is not None
        assert len({each.pid for each in engines if each}) == 1
        body = {"model": "long", "messages": QUESTION, "max_tokens": 1}
        httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=300)
        (running,) = sdk.ps().models
        assert (running.name, running.context_length) == ("long", 4096)
        sdk.generate("long", keep_alive=0)
        assert sdk.ps().models == []
        for name in ("one", "two", "long"):
            sdk.delete(name)


def test_shown(sdk: Sdk, home_server: RunningServer) -> None:
    sdk.create(
        "Shown:v1",
        from_="nano",
        system=SECRET,
        messages=TOLD,
        parameters={"temperature": 0.2, "stop": ["a", 'b"'], "mirostat": 1},
        license=["Mine.", "Yours."],
    )
    url = f"{home_server.url}/api/show"
    shown = httpx.post(url, json={"model": "shown:v1"}, trust_env=False).json()
    assert [line.split() for line in shown["parameters"].splitlines()] == [
        *(["temperature", "0.2"], ["top_p", "1"], ["top_k", "0"]),
        *(["stop", '"a"'], ["stop", '"b\\""'], ["mirostat", "1"]),
    ]
    assert shown["license"] == "Mine.\nYours."
    assert shown["details"]["parent_model"] == "nano"
    assert 'PARAMETER stop "a"\n' in shown["modelfile"]
    assert f'SYSTEM """{SECRET}"""\nMESSAGE user """What' in shown["modelfile"]
    assert (shown["system"], shown["messages"]) == (SECRET, TOLD)
    bare = sdk.show("nano").model_dump()
    assert (bare["license"], bare["details"]["parent_model"]) == ("", "")
    tags = {model.model: model for model in sdk.list().models}
    assert tags["shown:v1"].size == tags["nano"].size
    assert tags["shown:v1"].digest != tags["nano"].digest


def test_made_of_another_replaced_and_copied(
    sdk: Sdk, home_server: RunningServer, prompt: Prompt
) -> None:
    """The same name with defaults, with others, without any; a copy keeps its defaults."""
    sdk.create("first", from_="nano", system=SECRET, parameters={"num_predict": 3, "seed": 1})
    sdk.create("second", from_="first", parameters={"num_predict": 5})
    sdk.delete("first")
    assert sdk.chat("second", QUESTION).eval_count == 5
    assert "seed                           1" in (sdk.show("second").parameters or "")
    assert SECRET in prompt("second")
    sdk.delete("second")
    for system in ("", "Be brief.", "Be very brief and polite.", ""):
        sdk.create("mine", from_="nano", system=system)
        own = [{"role": "system", "content": system}] if system else []
        assert prompt("mine") == prompt("nano", [*own, *QUESTION])
        if "polite" in system:
            sdk.copy("mine", "kept")
    assert "very brief and polite" in prompt("kept")
    models = home_server.home / "models"
    assert sorted(p.name for p in models.iterdir() if p.is_file()) == ["kept.json", "mine.gguf"]
    assert len(list((models / "weights").iterdir())) == 1


@pytest.mark.parametrize("name", NAMES)
def test_every_dialect(sdk: Sdk, home_server: RunningServer, script: Script, name: str) -> None:
    parameters = {"num_predict": 40, "temperature": 0, "stop": ["river"], "top_k": 5, "seed": -1}
    sdk.create("guard", from_="nano", system=SECRET, parameters=parameters)
    with speak(home_server.url) as dialects:
        said = dialects[name].ask(QUESTION, more={"model": "guard"})
        assert said.content.endswith("quiet-") or name == "responses"  # which knows no stop
        assert SECRET in script.vocabulary.encoding.decode(script.prompts[-1])
        cut = dialects[name].ask(QUESTION, limit=5, more={"model": "guard"})
        assert (cut.n_generated, cut.end) == (5, "length")
    if name == "responses":
        body = {"model": "guard", "input": "Hi"}
        whole = httpx.post(f"{home_server.url}/v1/responses", json=body).json()
        assert whole["max_output_tokens"] == 40
    if name == "messages":
        body = {"model": "guard", "messages": QUESTION}
        counted = httpx.post(f"{home_server.url}/v1/messages/count_tokens", json=body).json()
        assert counted["input_tokens"] == said.n_prompt
