"""`models.toml`: ours, and additions, changes and mistakes in a user's own."""

from pathlib import Path

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.machine.plan.facts import published_facts
from gptoss_local.models.catalog import canonical_name, catalog, closest, known_model, known_names
from gptoss_local.models.store import file_for, find_model, list_models

pytestmark = pytest.mark.quick


@pytest.fixture
def users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's models.toml, not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "gptoss").mkdir(parents=True)
    return tmp_path / "config" / "gptoss" / "models.toml"


def test_ours_is_whole() -> None:
    """Sizes follow from the shapes of the tensors."""
    assert [model.name for model in catalog()] == [
        *("nano", "gpt-oss:20b", "gpt-oss:120b"),
        *("gpt-oss-safeguard:20b", "gpt-oss-safeguard:120b"),
    ]
    for model in catalog():
        if model.embedded:
            continue
        assert model.checkpoint is not None
        facts = published_facts(model.layers, model.experts)
        assert (model.gguf is None) == model.is_special
        assert model.gguf is None or model.gguf.size_bytes == facts.weight_bytes
        assert 1.0 < model.checkpoint.size_bytes / facts.weight_bytes < 1.2  # bf16, not Q8_0
        assert (model.license, model.sampling.top_k) == ("Apache-2.0", 0)
    names = known_names()
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        *((name, "gpt-oss:20b") for name in ("gpt-oss", "20b", "openai/gpt-oss-20b")),
        *((name, "gpt-oss:20b") for name in ("gpt-oss-20b", "GPT-OSS:latest", "gpt-oss:20B")),
        *((name, "gpt-oss:120b") for name in ("120b", "openai/gpt-oss-120b", "gpt-oss-120b")),
        *((name, "nano") for name in ("gpt-oss-nano", "nano:latest", "gpt-oss:nano")),
    ],
)
def test_aliases(typed: str, name: str) -> None:
    assert canonical_name(typed) == name


def test_a_user_adds_and_changes(users: Path, tmp_path: Path, nano_gguf: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    tuned = tmp_path / "Tuned.gguf"
    users.write_text(
        f"""
        [[model]]
        name = "Tuned:7b"
        aliases = ["TU"]
        file = "{tuned}"
        sampling = {{ temperature = 0.3, stop = ["x"] }}

        [[model]]
        name = "fine"
        checkpoint = {{ repo = "me/fine-tune@v2" }}

        [[model]]
        name = "gpt-oss:20b"
        sampling = {{ temperature = 0.5 }}
        """
    )
    assert canonical_name("tu") == "tuned:7b"
    assert closest("tund:7b", known_names()) == "tuned:7b"
    changed = known_model("gpt-oss:20b")
    assert changed is not None
    assert changed.repo == "openai/gpt-oss-20b"
    assert changed.sampling.options() == {"temperature": 0.5}
    assert file_for("fine", settings) == settings.models_dir / "fine.gguf"
    assert [e.name for e in list_models(settings)] == ["nano"]
    tuned.hardlink_to(nano_gguf)
    entry = find_model("TU", settings)
    assert [e.name for e in list_models(settings)] == ["tuned:7b", "nano"]
    assert (entry.path, entry.is_in_place) == (tuned, True)
    assert entry.defaults.parameters == {"temperature": 0.3, "stop": ["x"]}
    with pytest.raises(UsageError, match=r"as your models\.toml says"):
        file_for("tu", settings)
    users.write_text("")  # a changed file counts at once
    assert canonical_name("tu") == "tu"


NAMED = "[[model]]\nname = 'x'\n"
FILED = f"{NAMED}file = '/x.gguf'\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[model]\n", r"line 1"),
        ("model = 1", "model must be a list, not 1"),
        ("[other]\n", "'other' is not known"),
        ("[[model]]\ntitle = 'x'\nfile = '/x.gguf'", "'' is not a name"),
        (NAMED, "where it comes from"),
        ("[[model]]\nname = 'a b'\nfile = 'x.gguf'", "'a b' is not a name"),
        (f"{NAMED}file = 'sub/x.gguf'", "neither a name nor an absolute path"),
        (f"{NAMED}file = '/x.bin'", r"is not a \.gguf file"),
        (f"{NAMED}file = '~nobody-here/x.gguf'", "nor an absolute path"),
        (f'{NAMED}file = "/x\\u0000.gguf"', r"is not a \.gguf file"),
        (f"a = {'[' * 5000}", "cannot be read"),
        (f"{NAMED}embedded = true", "only nano is embedded"),
        (f"{NAMED}repo = 'a/b'", "model 'x': 'repo' is not known"),
        (f"{NAMED}checkpoint = {{repo = 'a'}}", "checkpoint.repo must .*, not 'a'"),
        (f"{NAMED}sampling = {{temprature = 1}}", "'temprature' is not known"),
        (f"{NAMED}sampling = {{top_p = 2.0}}", "top_p must be .*of at most 1"),
        (f"{NAMED}gguf = {{repo = 'a/b', files = []}}", "gguf.files must be a list"),
        (f"{FILED}needs = {{vram = 'much'}}", "is not a size"),
        (f"{FILED}aliases = ['20b']", "'20b' would be a name of both"),
        (f"{FILED}[[model]]\nname = 'X'\nfile = 'y.gguf'", "listed twice"),
        (f"{FILED}checkpoint = {{repo = 'a/b'}}", "a file of its own and a place to pull it from"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(users: Path, text: str, message: str) -> None:
    users.write_text(text)
    with pytest.raises(UsageError, match=message) as raised:
        canonical_name("nano")
    assert str(users) in raised.value.message
