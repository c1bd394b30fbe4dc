"""Read a request of Dynamo, and refuse it if our engine cannot do all of it.

Source: `PreprocessedRequest` in Dynamo 1.6's lib/llm/src/protocols/common/preprocessor.rs.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.base.formats.o200k import VOCAB_SIZE
from gptoss_local.base.types import Penalties, SamplingParams
from gptoss_local.base.validation import in_words
from gptoss_local.engine.protocol import Generate

_N_LOGPROBS_MAX = 20
_GROUPS = ("sampling_options", "stop_conditions", "output_options")
_FRONTENDS = {  # done by the frontend with the text
    *("stop", "include_stop_str_in_output"),
    *("skip_special_tokens", "formatted_prompt", "return_tokens_as_token_ids"),
}
_OFF: dict[str, tuple[Any, ...]] = {  # not done here, and the value that says that it is not wanted
    "n": (1,),
    "best_of": (1,),
    "use_beam_search": (False,),
    "length_penalty": (1.0,),
    "min_tokens": (0,),
    "prompt_logprobs": (),
    "max_thinking_tokens": (),
    "guided_decoding": (),
}
_ELSEWHERE = ("multi_modal_data", "prompt_embeds", "prefill_result")

_TokenId = Annotated[int, msgspec.Meta(ge=0, lt=VOCAB_SIZE)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class _EngineOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Our engine's options of all three groups, by Dynamo's names."""

    temperature: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    top_p: _Share = 1.0
    top_k: Annotated[int, msgspec.Meta(ge=-1)] = 0
    min_p: _Share = 0.0
    seed: int | None = None
    repetition_penalty: _Positive = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[_TokenId, float] = {}
    max_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    stop_token_ids: list[int] = []
    stop_token_ids_visible: list[int] = []
    stop_token_ids_hidden: list[int] = []
    ignore_eos: bool = False
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=_N_LOGPROBS_MAX)] | None = None


def read_request(request: Mapping[str, Any]) -> Generate:
    wanted: dict[str, Any] = {}
    for group in _GROUPS:
        wanted |= {n: value for n, value in (request.get(group) or {}).items() if value is not None}
    refused = [name for name, off in _OFF.items() if name in wanted and wanted[name] not in off]
    refused += [name for name in _ELSEWHERE if request.get(name)]
    if refused:
        hint = "A gptoss server in front of the frontend holds formats: docs/dynamo.md."
        raise UsageError(
            f"this worker does not know {', '.join(refused)}",
            hint=hint if "guided_decoding" in refused else "",
        )
    taken = {n: value for n, value in wanted.items() if n not in _OFF and n not in _FRONTENDS}
    try:
        prompt = msgspec.convert(request["token_ids"], list[_TokenId])
        options = msgspec.convert(taken, _EngineOptions, strict=False)
        priority = msgspec.convert((request.get("routing") or {}).get("priority") or 0, int)
    except msgspec.ValidationError as error:
        raise UsageError(in_words(error, taken)) from error
    # The hidden ones are the model's own.
    own = set(request.get("eos_token_ids") or ()) if options.ignore_eos else set()
    hidden = set(options.stop_token_ids_hidden) - own
    return Generate(
        prompt=prompt,
        sampling=_sampling(options),
        stop_tokens=sorted({*options.stop_token_ids, *options.stop_token_ids_visible, *hidden}),
        max_tokens=options.max_tokens,
        n_logprobs=options.logprobs,
        priority=priority,
    )


def _sampling(options: _EngineOptions) -> SamplingParams:
    penalties = Penalties(
        repeat=options.repetition_penalty,
        presence=options.presence_penalty,
        frequency=options.frequency_penalty,
    )
    return SamplingParams(
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=max(0, options.top_k),  # -1 is off, too
        min_p=options.min_p,
        seed=options.seed,
        penalties=None if penalties == Penalties() else penalties,
        logit_bias=tuple(options.logit_bias.items()),
    )
