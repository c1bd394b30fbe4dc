"""A request as Dynamo 1.6.1 sends it becomes a request for our engine."""

from typing import Any

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.types import Penalties, SamplingParams
from gptoss_local.cluster.dynamo.engine import read_request

pytestmark = pytest.mark.quick

RECORDED: dict[str, Any] = {
    "model": "nano",
    "token_ids": [1, 2, 3, 200006, 5],
    "stop_conditions": {
        "max_tokens": 3,
        "stop": None,
        "stop_token_ids": [7],
        "stop_token_ids_visible": None,
        "stop_token_ids_hidden": [200002, 199999, 200012],
        "min_tokens": None,
        "ignore_eos": None,
        "max_thinking_tokens": None,
    },
    "sampling_options": {
        "n": None,
        "best_of": None,
        "presence_penalty": 0.5,
        "frequency_penalty": None,
        "repetition_penalty": 1.25,
        "temperature": 0.5,
        "top_p": None,
        "top_k": 4,
        "min_p": 0.125,
        "use_beam_search": None,
        "length_penalty": None,
        "seed": 7,
        "include_stop_str_in_output": None,
        "guided_decoding": None,
    },
    "output_options": {
        "logprobs": 2,
        "prompt_logprobs": None,
        "skip_special_tokens": None,
        "formatted_prompt": None,
        "return_tokens_as_token_ids": None,
    },
    "eos_token_ids": [200002, 199999, 200012],
    "mdc_sum": "8a08",
    "annotations": [],
    "routing": {"dp_rank": 0, "priority": -3},
    "router_config_override": None,
    "extra_args": {"nvext": {"extra_fields": ["completion_token_ids"]}},
}


def changed(group: str, **values: Any) -> dict[str, Any]:
    return RECORDED | {group: RECORDED[group] | values}


def test_everything_that_the_engine_has_is_asked_for() -> None:
    asked = read_request(RECORDED)
    assert asked.prompt == [1, 2, 3, 200006, 5]
    assert asked.sampling == SamplingParams(
        temperature=0.5,
        top_k=4,
        min_p=0.125,
        seed=7,
        penalties=Penalties(repeat=1.25, presence=0.5),
    )
    assert asked.stop_tokens == [7, 199999, 200002, 200012]
    assert (asked.max_tokens, asked.n_logprobs, asked.priority) == (3, 2, -3)


def test_what_is_left_out_is_the_models_own() -> None:
    asked = read_request({"token_ids": [1], "sampling_options": {"top_k": -1}})
    assert asked.sampling == SamplingParams()
    assert (asked.stop_tokens, asked.max_tokens, asked.n_logprobs) == ([], None, None)
    assert asked.priority == 0


def test_biases() -> None:
    """Which Dynamo 1.6's frontend takes and does not hand on."""
    asked = read_request(changed("sampling_options", logit_bias={"65": 2.5}))
    assert asked.sampling.logit_bias == ((65, 2.5),)


def test_an_answer_that_ignores_the_models_ends_stops_at_others() -> None:
    assert read_request(changed("stop_conditions", ignore_eos=True)).stop_tokens == [7]


@pytest.mark.parametrize(
    ("group", "name", "off", "wanted"),
    [
        ("sampling_options", "n", 1, 2),
        ("sampling_options", "best_of", 1, 2),
        ("sampling_options", "use_beam_search", False, True),
        ("sampling_options", "length_penalty", 1.0, 0.5),
        ("sampling_options", "guided_decoding", None, {"json": {"type": "object"}}),
        ("stop_conditions", "min_tokens", 0, 5),
        ("stop_conditions", "max_thinking_tokens", None, 5),
        ("output_options", "prompt_logprobs", None, 1),
    ],
)
def test_what_the_engine_does_not_have_is_refused(
    group: str, name: str, off: Any, wanted: Any
) -> None:
    read_request(changed(group, **{name: off}))
    with pytest.raises(UsageError, match=name):
        read_request(changed(group, **{name: wanted}))


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("sampling_options", "temperature", -1),
        ("sampling_options", "top_p", 2),
        ("sampling_options", "repetition_penalty", 0),
        ("sampling_options", "a_later_option", 1),
        ("stop_conditions", "max_tokens", -1),
        ("output_options", "logprobs", 21),
    ],
)
def test_values_out_of_range_and_unknown_options_are_refused(
    group: str, name: str, value: Any
) -> None:
    with pytest.raises(UsageError, match=name):
        read_request(changed(group, **{name: value}))


@pytest.mark.parametrize("token", [-1, 201_088])
def test_a_token_that_does_not_exist_is_refused(token: int) -> None:
    with pytest.raises(UsageError):
        read_request({"token_ids": [1, token]})


def test_images_are_refused() -> None:
    with pytest.raises(UsageError, match="multi_modal_data"):
        read_request(RECORDED | {"multi_modal_data": {"image_url": ["x"]}})
