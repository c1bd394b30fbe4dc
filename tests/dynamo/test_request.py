"""A request as Dynamo 1.6.1 sends it becomes a request for our engine."""

from typing import Any

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.types import Penalties, SamplingParams
from gptoss_local.cluster.dynamo.request import read_request

pytestmark = pytest.mark.quick


def with_none(*names: str, **given: Any) -> dict[str, Any]:
    return dict.fromkeys(names) | given


ENDS = [200002, 199999, 200012]
RECORDED: dict[str, Any] = {
    "model": "nano",
    "token_ids": [1, 2, 3, 200006, 5],
    "stop_conditions": with_none(
        *("stop", "stop_token_ids_visible", "min_tokens", "ignore_eos", "max_thinking_tokens"),
        max_tokens=3,
        stop_token_ids=[7],
        stop_token_ids_hidden=ENDS,
    ),
    "sampling_options": with_none(
        *("n", "best_of", "frequency_penalty", "top_p", "use_beam_search", "length_penalty"),
        *("include_stop_str_in_output", "guided_decoding"),
        presence_penalty=0.5,
        repetition_penalty=1.25,
        temperature=0.5,
        top_k=4,
        min_p=0.125,
        seed=7,
    ),
    "output_options": with_none(
        *("prompt_logprobs", "skip_special_tokens", "formatted_prompt"),
        *("return_tokens_as_token_ids",),
        logprobs=2,
    ),
    "eos_token_ids": ENDS,
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


def test_biases_and_ends() -> None:
    """Dynamo 1.6's frontend takes biases and does not hand them on."""
    asked = read_request(changed("sampling_options", logit_bias={"65": 2.5}))
    assert asked.sampling.logit_bias == ((65, 2.5),)
    assert read_request(changed("stop_conditions", ignore_eos=True)).stop_tokens == [7]


# A group, a name, its value that is refused, and one that says nothing, if there is one.
REFUSED: list[tuple[str, str, Any, Any]] = [
    ("sampling_options", "n", 2, 1),
    ("sampling_options", "best_of", 2, 1),
    ("sampling_options", "use_beam_search", True, False),
    ("sampling_options", "length_penalty", 0.5, 1.0),
    ("sampling_options", "guided_decoding", {"json": {"type": "object"}}, None),
    ("stop_conditions", "min_tokens", 5, 0),
    ("stop_conditions", "max_thinking_tokens", 5, None),
    ("output_options", "prompt_logprobs", 1, None),
    ("sampling_options", "temperature", -1, 0),
    ("sampling_options", "top_p", 2, None),
    ("sampling_options", "repetition_penalty", 0, None),
    ("sampling_options", "a_later_option", 1, None),
    ("stop_conditions", "max_tokens", -1, None),
    ("output_options", "logprobs", 21, None),
]


@pytest.mark.parametrize(("group", "name", "wanted", "off"), REFUSED)
def test_what_the_engine_does_not_have_is_refused(
    group: str, name: str, wanted: Any, off: Any
) -> None:
    """Also values out of range, and options of a later version."""
    if name != "a_later_option":
        read_request(changed(group, **{name: off}))
    with pytest.raises(UsageError, match=name):
        read_request(changed(group, **{name: wanted}))


def test_tokens_that_do_not_exist_and_images_are_refused() -> None:
    for token in (-1, 201_088):
        with pytest.raises(UsageError):
            read_request({"token_ids": [1, token]})
    with pytest.raises(UsageError, match="multi_modal_data"):
        read_request(RECORDED | {"multi_modal_data": {"image_url": ["x"]}})
