"""Recorded arrivals, in Mooncake's format."""

from pathlib import Path

import pytest

from gptoss_local.cluster.capacity.source import read_arrivals
from gptoss_local.errors import ContextOverflowError, PathNotFoundError, UsageError

pytestmark = pytest.mark.quick

LINE = '{"timestamp": 1500, "input_length": 700, "output_length": 9, "hash_ids": [%s]}'


def test_blocks_become_tokens(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    other = '{"timestamp": 0, "input_length": 5, "output_length": 1}'
    path.write_text("\n".join([LINE % "9000000000, 7", LINE % "9000000000, 8", "", other]))
    first, second, third = read_arrivals(path, 1000)
    assert (first.at_s, first.n_answer, len(first.tokens)) == (1.5, 9, 700)
    assert first.tokens[:512] == second.tokens[:512]
    assert first.tokens[512] != second.tokens[512]
    assert len(third.tokens) == 5
    assert third.tokens[0] not in first.tokens


def test_what_is_no_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with pytest.raises(PathNotFoundError):
        read_arrivals(path, 1000)
    path.write_text("\n")
    with pytest.raises(UsageError, match="no request"):
        read_arrivals(path, 1000)
    path.write_text(LINE % "1, 2" + '\n{"timestamp": 0, "input_length": 0, "output_length": 1}')
    with pytest.raises(UsageError, match="line 2 of"):
        read_arrivals(path, 1000)
    path.write_text(LINE % "1, 2")
    with pytest.raises(ContextOverflowError, match=r"line 1 of .* has 709 tokens"):
        read_arrivals(path, 708)
