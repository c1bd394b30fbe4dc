"""Models that carry a system message, options and messages: made, shown, used, copied, removed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

from gptoss_local.harmony import Vocabulary
from tests.conftest import RunningServer, run_server
from tests.scripted_engine import Script, answer, run_scripted_server
from tests.server.conftest import GREEDY

SECRET = "Remember this: the passcode is quiet-river-42."
QUESTION = [{"role": "user", "content": "What is the passcode?"}]
TOLD = [
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "The capital of France is Paris."},
]
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


def prompt(script: Script) -> str:
    """The last prompt as text."""
    return str(script.vocabulary.encoding.decode(script.prompts[-1]))


def n_prompt(sdk: Sdk, model: str, messages: list[dict[str, str]], **options: Any) -> int:
    reply = sdk.chat(model, messages, options=GREEDY | {"num_predict": 1} | options)
    return reply.prompt_eval_count or 0


def test_a_system_message(sdk: Sdk, script: Script) -> None:
    statuses = [s.status for s in sdk.create("guard", from_="nano", system=SECRET, stream=True)]
    assert statuses == ["writing manifest", "success"]
    sdk.chat("guard", QUESTION)
    told = prompt(script)
    assert SECRET in told
    sdk.chat("nano", [{"role": "system", "content": SECRET}, *QUESTION])
    assert prompt(script) == told
    sdk.generate("guard", "What is the passcode?")
    assert prompt(script) == told
    list(sdk.chat("guard", QUESTION, stream=True))
    assert prompt(script) == told


def test_a_request_that_has_a_system_message_keeps_it_alone(sdk: Sdk) -> None:
    sdk.create("guard", from_="nano", system=SECRET)
    own = [{"role": "system", "content": "Be brief."}, *QUESTION]
    assert n_prompt(sdk, "guard", own) == n_prompt(sdk, "nano", own)
    assert n_prompt(sdk, "guard", QUESTION) > n_prompt(sdk, "nano", QUESTION)
    asked = {"prompt": "hi", "options": GREEDY | {"num_predict": 1}}
    plain = sdk.generate("nano", system="Be brief.", **asked)  # type: ignore[call-overload]
    bound = sdk.generate("guard", system="Be brief.", **asked)  # type: ignore[call-overload]
    assert bound.prompt_eval_count == plain.prompt_eval_count
    raw = [sdk.generate(m, raw=True, **asked) for m in ("nano", "guard")]  # type: ignore[call-overload]
    assert raw[0].prompt_eval_count == raw[1].prompt_eval_count
    first = sdk.generate("guard", "hi", options=GREEDY)
    going_on = {"context": first.context, "prompt": "hi", "options": GREEDY | {"num_predict": 1}}
    second = [sdk.generate(m, **going_on) for m in ("nano", "guard")]  # type: ignore[call-overload]
    assert second[0].prompt_eval_count == second[1].prompt_eval_count


def test_messages_begin_every_conversation(sdk: Sdk) -> None:
    sdk.create("primed", from_="nano", messages=TOLD, system="Be brief.")
    own = [{"role": "system", "content": "Be brief."}, *TOLD, *QUESTION]
    assert n_prompt(sdk, "primed", QUESTION) == n_prompt(sdk, "nano", own)
    mine = {"role": "system", "content": "Be very brief, please."}
    assert n_prompt(sdk, "primed", [mine, *QUESTION]) == n_prompt(
        sdk, "nano", [mine, *TOLD, *QUESTION]
    )


def test_parameters_apply_and_a_request_wins(sdk: Sdk) -> None:
    sdk.create("short", from_="nano", parameters={"num_predict": 3, "temperature": 0, "seed": 7})
    reply = sdk.chat("short", QUESTION)
    assert (reply.eval_count, reply.done_reason) == (3, "length")
    assert sdk.chat("short", QUESTION, options={"num_predict": 5}).eval_count == 5
    sdk.create("quiet", from_="nano", parameters={"stop": ["Paris"], "temperature": 0})
    assert "Paris" not in (sdk.chat("quiet", TOLD[:1]).message.content or "")
    assert "Paris" in (sdk.chat("quiet", TOLD[:1], options={"stop": []}).message.content or "")


def test_weights_are_loaded_once_with_the_num_ctx_of_the_model(home: Path) -> None:
    with run_server(home, context_length="2048") as server, ollama.Client(server.url) as sdk:
        sdk.create("one", from_="nano", system="One.")
        sdk.create("long", from_="nano", parameters={"num_ctx": 4096})
        sdk.copy("one", "two")
        engine = None
        for name in ("nano", "one", "two", "nano"):
            sdk.chat(name, QUESTION, options={"num_predict": 1})
            found = server.engine()
            assert found is not None
            assert engine in (None, found.pid)
            engine = found.pid
            assert [model.name for model in sdk.ps().models] == [name]
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
    shown = sdk.show("shown:v1").model_dump()
    assert shown["parameters"].splitlines() == [
        "temperature                    0.2",
        "top_p                          1",
        "top_k                          0",
        'stop                           "a"',
        'stop                           "b\\""',
        "mirostat                       1",
    ]
    assert shown["license"] == "Mine.\nYours."
    assert shown["details"]["parent_model"] == "nano"
    assert 'PARAMETER stop "a"\n' in shown["modelfile"]
    assert f'SYSTEM """{SECRET}"""\nMESSAGE user """What' in shown["modelfile"]
    whole = httpx.post(
        f"{home_server.url}/api/show", json={"model": "shown:v1"}, trust_env=False
    ).json()
    assert whole["system"] == SECRET
    assert whole["messages"] == TOLD
    bare = sdk.show("nano").model_dump()
    assert (bare["license"], bare["details"]["parent_model"]) == ("", "")
    tags = {model.model: model for model in sdk.list().models}
    assert tags["shown:v1"].size == tags["nano"].size
    assert tags["shown:v1"].digest != tags["nano"].digest


def test_made_of_one_that_carries_defaults(sdk: Sdk) -> None:
    sdk.create("first", from_="nano", system=SECRET, parameters={"num_predict": 3, "seed": 1})
    sdk.create("second", from_="first", parameters={"num_predict": 5})
    sdk.delete("first")
    assert sdk.chat("second", QUESTION).eval_count == 5
    parameters = sdk.show("second").parameters or ""
    assert "num_predict                    5" in parameters
    assert "seed                           1" in parameters
    assert n_prompt(sdk, "second", QUESTION) > n_prompt(sdk, "nano", QUESTION)


def test_replaced_and_copied(sdk: Sdk, home_server: RunningServer) -> None:
    """The same name with defaults, with others, without any; a copy keeps what it has."""
    lengths = []
    for system in ("", "Be brief.", "Be very brief and polite.", ""):
        sdk.create("mine", from_="nano", system=system)
        lengths.append(n_prompt(sdk, "mine", QUESTION))
        if "polite" in system:
            sdk.copy("mine", "kept")
    assert lengths[0] == lengths[3] < lengths[1] < lengths[2]
    assert n_prompt(sdk, "kept", QUESTION) == lengths[2]
    models = home_server.home / "models"
    assert sorted(p.name for p in models.iterdir() if p.is_file()) == ["kept.json", "mine.gguf"]
    assert len(list((models / "weights").iterdir())) == 1


def test_every_dialect(sdk: Sdk, home_server: RunningServer, script: Script) -> None:
    parameters = {"num_predict": 40, "temperature": 0, "stop": ["river"], "top_k": 5, "seed": -1}
    sdk.create("guard", from_="nano", system=SECRET, parameters=parameters)
    url = home_server.url
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x") as client:
        chat = client.chat.completions.create(model="guard", messages=QUESTION)  # type: ignore[arg-type]
        assert "quiet-" in (chat.choices[0].message.content or "")
        assert "river" not in (chat.choices[0].message.content or "")
        cut = client.chat.completions.create(
            model="guard",
            messages=QUESTION,  # type: ignore[arg-type]
            max_completion_tokens=2,
        )
        assert cut.usage is not None
        assert cut.usage.completion_tokens == 2
        response = client.responses.create(model="guard", input="What is the passcode?")
        assert SECRET in prompt(script)
        assert response.max_output_tokens == 40
    with anthropic.Anthropic(base_url=url, api_key="x") as client:
        asked: Any = {"model": "guard", "messages": QUESTION}
        message = client.messages.create(max_tokens=50, **asked)
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "river")
        count = client.messages.count_tokens(**asked)
        used = message.usage
        assert count.input_tokens == used.input_tokens + (used.cache_read_input_tokens or 0)
