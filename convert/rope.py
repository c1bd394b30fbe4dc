"""The rotary position embedding of a config.json: transformers 4's or 5's keys.

Unknown settings, and those that a GGUF cannot hold, are refused by name. Source:
`_compute_yarn_parameters` in transformers' modeling_rope_utils.py; `llama_context` in llama.cpp.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec

from gptoss_local.base.errors import ConvertError
from gptoss_local.base.validation import in_words

Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
"""Far above any published size, and low enough not to exhaust the memory by a list."""

_Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]

_PLACES = ("rope_scaling", "rope_parameters")
_ORIGINAL = "original_max_position_embeddings"
_TOP = ("rope_theta", "partial_rotary_factor", _ORIGINAL)

TOP_LEVEL_KEYS = frozenset({*_PLACES, *_TOP})

# Built into llama.cpp for gpt-oss, or without effect.
_FIXED = {
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "attn_factor": 1.0,
    "extrapolation_factor": 1.0,
    "partial_rotary_factor": 1.0,
}
_NO_EFFECT = ("truncate", "finetuned")  # ggml always truncates; docs/convert.md has the cost
_YARN = ("factor", _ORIGINAL, "attention_factor")


class RopeConfig(msgspec.Struct, frozen=True):
    """Rotary position embedding, and YaRN; `attention_factor` None is YaRN's own."""

    rope_theta: Annotated[float, msgspec.Meta(gt=1, le=1e12)]
    rope_type: str = "default"
    factor: _Positive = 1.0
    original_max_position_embeddings: Count | None = None
    beta_fast: _Positive | None = None
    beta_slow: _Positive | None = None
    attention_factor: _Positive | None = None


def yarn_scale(factor: float) -> float:
    """Return the factor of cosine and sine for a context that is `factor` times as long."""
    return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0


def read_rope(fields: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Collect and check the fields of a `RopeConfig`; types are checked here only for YaRN."""
    return _Reader(fields, path).read()


class _Reader:
    def __init__(self, fields: Mapping[str, Any], path: Path) -> None:
        self._fields = {key: value for key, value in fields.items() if value is not None}
        self._path = path

    def read(self) -> dict[str, Any]:
        stated = self._stated()
        if "rope_theta" not in stated:
            raise ConvertError(f"{self._path} does not fit gpt-oss: it lacks rope_theta.")
        kind = self._kind(stated)
        known = {"rope_theta", *_FIXED, *_NO_EFFECT, *_YARN}
        for key in sorted(stated.keys() - known):
            self._refuse(f"states {key} in {self._place()}, which is not a known key")
        if kind == "yarn":
            return {"rope_type": kind} | self._yarn(stated)
        # Without scaling the original context means nothing.
        for key in sorted(stated.keys() - {"rope_theta", "partial_rotary_factor", _ORIGINAL}):
            self._refuse(f"states {key}, but the rope_type {kind!r}, which has none")
        self._check_fixed(stated)
        return {"rope_type": kind, "rope_theta": stated["rope_theta"]}

    def _stated(self) -> dict[str, Any]:
        """Merge the two objects where scaling may be stated, and the keys outside of them."""
        merged: dict[str, Any] = {}
        for place in _PLACES:
            found = self._fields.get(place)
            if found is None:
                continue
            if not isinstance(found, dict):
                raise ConvertError(
                    f"{self._path} does not fit gpt-oss: {place} is {found!a:.80}, not an object "
                    "of rope_type, rope_theta and the like."
                )
            for key, value in _plain(found).items():
                if merged.setdefault(key, value) != value:
                    self._refuse(f"states two values of {key}, in rope_scaling and rope_parameters")
        for key in _TOP:
            found = self._fields.get(key)
            if found is not None and merged.setdefault(key, found) != found:
                self._refuse(f"states two values of {key}: {merged[key]!r} and {found!r}")
        return merged

    def _kind(self, stated: dict[str, Any]) -> str:
        names = [stated.pop(key) for key in ("rope_type", "type") if key in stated]
        if len(names) == 2 and names[0] != names[1]:
            self._refuse(f"states the rope_type {names[0]!r} and the type {names[1]!r}")
        if names and names[0] in ("default", "yarn"):
            return str(names[0])
        if names:
            raise ConvertError(
                f"{self._path} states the rope_type {names[0]!r}, which is not known; gpt-oss uses "
                "yarn."
            )
        if scaling := sorted(stated.keys() & {*_YARN, "beta_fast", "beta_slow"}):
            self._refuse(f"states {scaling[0]}, but no rope_type")
        if not any(self._fields.get(place) for place in _PLACES):
            # transformers 5 takes YaRN for this, transformers 4 and llama.cpp none.
            raise ConvertError(
                f"{self._path} does not say whether positions are scaled.",
                hint='Copy rope_scaling from the base model\'s config.json, or state {"rope_type": '
                '"default"} there if positions are not scaled.',
            )
        return "default"

    def _yarn(self, stated: dict[str, Any]) -> dict[str, Any]:
        for key in (_ORIGINAL, "factor"):
            if key not in stated:
                raise ConvertError(f"{self._path} lacks {key}, which YaRN needs.")
        found = {key: value for key, value in stated.items() if key in RopeConfig.__struct_fields__}
        try:
            msgspec.convert(found, RopeConfig)
        except msgspec.ValidationError as error:
            what = in_words(error, found)
            raise ConvertError(f"{self._path} does not fit gpt-oss: {what}.") from error
        self._check_fixed(stated)
        return found

    def _check_fixed(self, stated: dict[str, Any]) -> None:
        for key, right in _FIXED.items():
            if (value := stated.get(key, right)) != right or isinstance(value, bool):
                self._refuse(f"states a {key} of {value!r}; llama.cpp runs gpt-oss with {right:g}")
        for key in _NO_EFFECT:
            if not isinstance(stated.get(key, False), bool):
                self._refuse(f"states a {key} of {stated[key]!r}, which is not true or false")

    def _place(self) -> str:
        return next((place for place in _PLACES if self._fields.get(place)), _PLACES[0])

    def _refuse(self, what: str) -> NoReturn:
        raise ConvertError(
            f"{self._path} {what}.",
            hint="The model would compute something else in llama.cpp. If the key is wrong or has "
            "no effect, take it out of config.json.",
        )


def _plain(stated: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in stated.items() if value is not None}
