"""Files that are renamed in and changed: what must change does, and all else stays."""

import re
from string import Formatter

import pytest

from bench.nano.data import edit, edit_phrasings
from bench.nano.data.document import Answer, Branch
from bench.nano.data.file_texts import draw_program
from bench.nano.data.source import Source
from bench.nano.data.wording import _allowed

BANKS = {
    name: value
    for name, value in vars(edit_phrasings).items()
    if name.isupper() and not name.startswith("_")
}
SLOTS = {"COPY": set(), "DELETE": {"old"}, "PATCH": {"patch"}}
N_DRAWS = 150


def words_of(templates: list[str]) -> set[str]:
    return set(re.findall(r"\w+", " ".join(templates).lower()))


@pytest.mark.parametrize("name", BANKS)
def test_every_phrasing_has_its_slots(name: str) -> None:
    for template in (template for bank in BANKS[name] for template in bank):
        found = {slot for _, slot, _, _ in Formatter().parse(template) if slot}
        assert found == SLOTS.get(name, {"old", "new"}), template


@pytest.mark.parametrize("name", BANKS)
def test_training_has_seen_the_words_of_held_out_phrasings(name: str) -> None:
    trained = [text for bank in BANKS[name] for text in _allowed(bank, False)]
    held_out = [text for bank in BANKS[name] if len(bank) > 6 for text in _allowed(bank, True)]
    assert held_out
    assert words_of(held_out) <= words_of(trained)


def told_names(answer: Answer) -> tuple[str, str]:
    """The old and the new name, from an analysis of high effort."""
    told = re.fullmatch(r".*The old name is (\w+) and the new name is (\w+)\. .*", answer.analysis)
    assert told
    return told[1], told[2]


def test_renaming_spares_names_that_hold_the_old_one() -> None:
    """Found again with a second way to tell words apart; longer names are among the cases."""
    source, n_spared = Source(11), 0
    for _ in range(N_DRAWS):
        text = draw_program(source, 30)
        asked = edit._rename_ask(source, "high", text)
        if asked is None:
            continue
        old, new = told_names(asked[1])
        parts = re.split(r"(\w+)", text)
        renamed = "".join(new if part == old else part for part in parts)
        assert parts.count(old) >= 2
        assert asked[1].text == f"```\n{renamed}\n```"
        assert old in asked[0]
        assert new in asked[0]
        n_spared += old in renamed
    assert n_spared > N_DRAWS // 30


def test_training_renames_more_of_what_is_cut_otherwise_behind_a_sign() -> None:
    assert edit._is_cut_otherwise("run(self.BranchForm)", "BranchForm")  # .Br anch Form
    assert not edit._is_cut_otherwise("run(self BranchForm)", "BranchForm")
    assert not edit._is_cut_otherwise("run(self.branch)", "branch")

    def n_hard(source: Source) -> int:
        texts = [draw_program(source, 30) for _ in range(N_DRAWS)]
        asked = [(text, edit._rename_ask(source, "high", text)) for text in texts]
        return sum(edit._is_cut_otherwise(text, told_names(a[1])[0]) for text, a in asked if a)

    assert n_hard(Source(14)) > 1.5 * n_hard(Source(14, held_out=True)) > 0


def test_names_are_renamed_in_many_places_and_files_of_all_lengths() -> None:
    source = Source(12)
    documents = [edit._edit(source, "low") for _ in range(N_DRAWS)]
    several = [d for d in documents if sum(b.skill == "rename" for b in d.branches) > 1]
    assert len(several) > N_DRAWS // 5
    lengths = [len(branch.answer.text.split("\n")) for d in several for branch in d.branches]
    assert min(lengths) < 40
    assert max(lengths) > 150


@pytest.mark.parametrize("kind", ["rename", "change", "copy_file"])
def test_the_same_seed_asks_the_same(kind: str) -> None:
    def draw() -> list[Branch]:
        source = Source(13)
        return [edit.BRANCHES[kind](source, "medium") for _ in range(20)]

    assert draw() == draw()
