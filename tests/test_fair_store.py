"""The values that stay if several owners have too many."""

import pytest

from gptoss_local.base.fair_store import FairStore

pytestmark = pytest.mark.quick


def kept(store: FairStore[str], owner: str) -> str:
    return "".join(key for key in "abcdefgh" if store.get(owner, key))


def test_the_owner_with_the_most_loses_the_least_recently_used() -> None:
    store = FairStore[str](6, len)
    for key in "abc":
        assert store.put("busy", key, "xx") == []
    store.get("busy", "a")
    assert store.put("quiet", "a", "y") == ["xx"]
    assert (kept(store, "busy"), kept(store, "quiet")) == ("ac", "a")
    assert store.put("busy", "d", "1") == []
    assert store.put("busy", "e", "2") == ["xx"]
    assert (kept(store, "busy"), kept(store, "quiet")) == ("cde", "a")


def test_owners_that_want_all_get_equal_shares() -> None:
    store = FairStore[str](60, len)
    for n in range(300):
        for owner in ("ada", "bob", "eve"):
            store.put(owner, f"{owner} {n}", "x")
    for owner in ("ada", "bob", "eve"):
        found = [n for n in range(300) if store.get(owner, f"{owner} {n}")]
        assert found == list(range(280, 300))


def test_what_is_larger_than_all_is_not_kept() -> None:
    store = FairStore[str](6, len)
    store.put("quiet", "a", "xx")
    assert store.put("busy", "b", "x" * 7) == ["x" * 7]
    assert (kept(store, "busy"), kept(store, "quiet")) == ("", "a")


def test_a_value_is_replaced_and_taken_out() -> None:
    store = FairStore[str](6, len)
    for value in ("xxxx", "yyyy"):
        assert store.put("ada", "a", value) == []
    assert store.get("ada", "a") == "yyyy"
    assert store.pop("bob", "a") is None
    assert store.pop("ada", "a") == "yyyy"
    assert store.get("ada", "a") is None
    assert store.put("ada", "b", "xxxxxx") == []
