"""Broken headers are refused, before a plan divides by their numbers."""

from pathlib import Path

import msgspec
import pytest

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.base.formats.gguf_file import read_info
from gptoss_local.machine.plan.facts import model_facts

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", 10**12),
        ("expert_count", 0),
        ("expert_used_count", 99),
        ("context_length", 0),
        ("context_length", "y"),
        ("embedding_length", 0),
    ],
)
def test_impossible_numbers(nano_gguf: Path, key: str, value: object) -> None:
    info = read_info(nano_gguf)
    model_facts(info)
    metadata = info.metadata | {f"{info.architecture}.{key}": value}
    with pytest.raises(ModelLoadError, match="is not a gpt-oss"):
        model_facts(msgspec.structs.replace(info, metadata=metadata))
