"""Our table of ggml's types equals the installed llama.cpp's."""

import llama_cpp
import numpy as np
import pytest

from convert.verify.scan import first_infinite
from gptoss_local.base.formats.ggml_types import FILE_TYPES, GGML_TYPES, GgmlType
from tests.convert import ggml

pytestmark = pytest.mark.quick

INTEGERS = {"i8", "i16", "i32", "i64", "f64", "q8_1", "q8_K"}  # never of weights in a file


def test_every_type_of_weights() -> None:
    theirs = {i: each for i, each in ggml.types().items() if each[0] not in INTEGERS}
    ours = {i: (each.name.lower(), each.n_values, each.n_bytes) for i, each in GGML_TYPES.items()}
    assert ours == {i: (name.lower(), *sizes) for i, (name, *sizes) in theirs.items()}


def test_every_name_of_a_mixture() -> None:
    prefix = "LLAMA_FTYPE_"
    theirs = {
        getattr(llama_cpp, name): name.removeprefix(prefix).removeprefix("MOSTLY_")
        for name in dir(llama_cpp)
        if name.startswith(prefix) and "GUESSED" not in name
    }
    names = {i: name.removeprefix("ALL_").removesuffix("_MOE") for i, name in theirs.items()}
    assert names.items() <= FILE_TYPES.items()


LOOKED_AT = [k for k in GGML_TYPES.values() if not k.name.startswith(("IQ1", "IQ2", "IQ3", "TQ"))]
LOOKED_AT = [k for k in LOOKED_AT if k.name not in ("NVFP4", "Q1_0", "Q2_0")]


@pytest.mark.parametrize("kind", LOOKED_AT, ids=lambda kind: kind.name)
def test_infinite_values_are_found(kind: GgmlType) -> None:
    """Wherever llama.cpp finds it, in types that others write, too."""
    rng = np.random.default_rng(2)
    n_found = 0
    for _ in range(300):
        data = rng.integers(0, 256, 8 * kind.n_bytes, np.uint8)
        found = first_infinite(data, kind)
        n_found += found is not None
        if kind.name == "MXFP4":  # scales whose values overflow are found, too
            assert found is not None or ggml.is_valid(kind.id, data)
        else:
            assert (found is None) == ggml.is_valid(kind.id, data)
    assert n_found
