"""The library that is loaded is the one that its binding was written for."""

import pytest

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.engine.llama import library

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("commit", "is_ours"),
    [
        (b"0c1e57098", True),  # a release of llama.cpp
        (b"0c1e570", True),  # git shortens it as far as it is unique
        (b"0c1e570-dirty", True),  # llama-cpp-python's own source
        (b"unknown", True),  # built without git
        (b"1111111", False),
        (b"0c1e57111", False),
    ],
)
def test_a_library_of_another_commit_is_refused(
    monkeypatch: pytest.MonkeyPatch, commit: bytes, is_ours: bool
) -> None:
    monkeypatch.setattr(library, "ggml", lambda *_: commit)
    if is_ours:
        library._check_build()
        return
    with pytest.raises(ModelLoadError, match=r"gptoss needs 0c1e57098 \(b11312\)"):
        library._check_build()
