"""Presets: one file that people and the chat change, and nothing of it is lost."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptoss_local.base import whole_file
from gptoss_local.base.errors import UsageError
from gptoss_local.talk.presets import (
    Preset,
    find_preset,
    options_text,
    parse_options,
    presets_path,
    read_presets,
    remove_preset,
    save_preset,
)

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "gptoss"


BY_HAND = '''\
# mine
[reviewer]   # for code
system = """
You review code.
Be terse."""  # two lines
effort = "high"
options = { temperature = 0.3, truncate = true, repeat_guard = false }

["日本語 tutor"]
system = 'Answer in Japanese.'
'''


def test_a_file_by_hand(config: Path) -> None:
    assert read_presets() == {}
    config.mkdir()
    presets_path().write_text(BY_HAND, encoding="utf-8")
    assert read_presets() == {
        "reviewer": Preset(
            system="You review code.\nBe terse.",
            effort="high",
            options={"temperature": 0.3, "truncate": True, "repeat_guard": False},
        ),
        "日本語 tutor": Preset(system="Answer in Japanese."),
    }
    assert find_preset(" Reviewer ")[0] == "reviewer"


def test_what_people_wrote_stays(config: Path) -> None:
    config.mkdir()
    presets_path().write_text(BY_HAND, encoding="utf-8")
    save_preset("short", Preset(system="Be brief.", options={"seed": 7}))
    text = presets_path().read_text(encoding="utf-8")
    assert text.startswith(BY_HAND)
    assert '[short]\nsystem = "Be brief."\noptions = {seed = 7}\n' in text
    changed = Preset(system=read_presets()["reviewer"].system, effort="low")
    save_preset("reviewer", changed, instead_of="reviewer")
    text = presets_path().read_text(encoding="utf-8")
    assert "# mine\n[reviewer]   # for code\n" in text
    assert 'Be terse."""  # two lines\n' in text
    assert 'effort = "low"' in text
    assert read_presets()["reviewer"] == changed
    save_preset("critic", changed, instead_of="reviewer")
    assert list(read_presets()) == ["日本語 tutor", "short", "critic"]
    remove_preset("critic")
    remove_preset("critic")
    assert list(read_presets()) == ["日本語 tutor", "short"]


def test_a_link_stays_one(config: Path, tmp_path: Path) -> None:
    config.mkdir()
    (tmp_path / "dotfiles.toml").write_text("")
    presets_path().symlink_to(tmp_path / "dotfiles.toml")
    save_preset("a", Preset(system="x"))
    assert presets_path().is_symlink()
    assert "[a]" in (tmp_path / "dotfiles.toml").read_text()


_NAMES = st.text(min_size=1, max_size=40).filter(lambda s: s.strip() and s.isprintable())
_PRESETS = st.builds(
    Preset,
    system=st.text(),
    effort=st.sampled_from([None, "low", "medium", "high"]),
    options=st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.floats(0, 2),
            "seed": st.integers(0, 2**31 - 1),
            "truncate": st.just(True),
            "repeat_guard": st.booleans(),
        },
    ),
)


@given(_NAMES, _PRESETS, _PRESETS)
def test_nothing_is_lost(name: str, first: Preset, second: Preset) -> None:
    presets_path().unlink(missing_ok=True)
    save_preset(name, first)
    assert read_presets() == {name.strip(): first}
    save_preset("other", second) if name.strip() != "other" else None
    save_preset(name, second, instead_of=name.strip())
    assert read_presets()[name.strip()] == second
    assert parse_options(options_text(second.options)) == second.options


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[a", "is not valid TOML"),
        ("a = 1", "the preset 'a': it must be an object, not 1"),
        ("[a]\ntemperature = 1", "the preset 'a': 'temperature' is not known"),
        ("[a]\nsystem = 1", "system must be text, not 1"),
        ('[a]\neffort = "huge"', "effort cannot be 'huge'"),
        ("[a]\neffort = []", "effort must be text"),
        ("[a]\noptions = 1", "options must be an object"),
        ("[a]\noptions = { temperature = 9 }", "temperature is a number from 0 to 2"),
        ("[a]\noptions = { seed = true }", "seed is a whole number"),
        ("[a]\noptions = { repeat_guard = 0 }", "repeat_guard is on or off"),
        ("[a]\noptions = { temp = 1 }", "there is no option 'temp'"),
    ],
)
def test_a_file_that_is_wrong(config: Path, text: str, words: str) -> None:
    """It is said where, and the file stays as it is."""
    config.mkdir()
    presets_path().write_text(text)
    for act in (read_presets, lambda: save_preset("b", Preset()), lambda: remove_preset("a")):
        with pytest.raises(UsageError) as caught:
            act()
        assert words in caught.value.message
        assert str(presets_path()) in caught.value.message
    assert presets_path().read_text() == text


def test_names(config: Path) -> None:
    save_preset("Tutor", Preset())
    for name, words in (("", "1 to 40"), (" ", "1 to 40"), ("x" * 41, "1 to 40"),
                        ("a\nb", "1 to 40"), ("tutor", "already")):  # fmt: skip
        with pytest.raises(UsageError, match=words):
            save_preset(name, Preset())
    save_preset("tutor", Preset(), instead_of="Tutor")
    assert list(read_presets()) == ["tutor"]
    with pytest.raises(UsageError) as caught:
        find_preset("tuter")
    assert caught.value.hint == "Did you mean tutor?"
    with pytest.raises(UsageError) as caught:
        find_preset("zzz")
    assert caught.value.hint == "Presets: policy, tutor."


def test_a_disk_that_is_full(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is as it was, and nothing else is left there."""
    save_preset("a", Preset(system="x"))
    before = presets_path().read_bytes()

    def refuse(*_paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(whole_file.os, "replace", refuse)
    with pytest.raises(UsageError, match="No space left"):
        save_preset("b", Preset())
    assert presets_path().read_bytes() == before
    assert [path.name for path in config.iterdir()] == ["presets.toml"]
