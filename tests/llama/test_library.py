"""How llama.cpp's backends are found."""

from typing import Any

import pytest

from gptoss_local.base.errors import ModelLoadError
from gptoss_local.engine.llama import library


def test_a_library_without_a_backend_for_this_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the processor is older than all of a wheel's variants: ggml loads none."""
    called: list[tuple[str, bytes]] = []

    def ggml(name: str, _restype: object, *arguments: Any) -> int:
        called.append((name, arguments[0].value if arguments else b""))
        return 0

    monkeypatch.setattr(library, "ggml", ggml)
    with pytest.raises(ModelLoadError, match="no backend for this processor"):
        library._load_backends()
    load, folder = called[1]
    assert load == "ggml_backend_load_all_from_path"
    assert folder == str(library._base_path).encode()  # and not the working directory


def test_the_library_describes_itself() -> None:
    assert "CPU : " in library.system_info()
