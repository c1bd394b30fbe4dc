"""A checkpoint comes from a local hub through huggingface_hub: which files, and when."""

from pathlib import Path

import pytest
from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.errors import GatedRepoError

from gptoss_local.base.errors import DownloadError, GptOssError
from gptoss_local.models.hub import open_checkpoint
from tests.hub.conftest import REPO, SHARD_BYTES, SHARDS, fetch, repo_files
from tests.hub.server import MEMBER, STRANGER, Fault, HubServer


@pytest.mark.quick
def test_a_checkpoint_arrives_whole_and_once(hub: HubServer, tmp_path: Path) -> None:
    assert sorted(fetch(tmp_path)) == SHARDS
    files = repo_files()
    visible = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert visible == {name for name in files if "/" not in name}
    assert all((tmp_path / name).read_bytes() == files[name] for name in visible)
    assert not list(tmp_path.rglob("*.incomplete"))
    hub.sent.clear()
    assert sorted(fetch(tmp_path)) == SHARDS
    assert not hub.sent
    damaged = bytearray((tmp_path / SHARDS[0]).read_bytes())
    damaged[1000] ^= 1
    (tmp_path / SHARDS[0]).write_bytes(damaged)  # a shard that was touched later
    fetch(tmp_path)
    assert (tmp_path / SHARDS[0]).read_bytes() == files[SHARDS[0]]


def test_original_layout_comes_without_the_other_weights(hub: HubServer, tmp_path: Path) -> None:
    assert fetch(tmp_path, original=True) == ["model.safetensors"]
    with open_checkpoint(REPO, tmp_path, original=True) as checkpoint:
        assert checkpoint.folder == tmp_path / "original"
        config = (checkpoint.folder / "config.json").read_bytes()
        assert config == repo_files()["original/config.json"]
        assert (tmp_path / "tokenizer.json").is_file()
    assert not any(hub.sent[shard] for shard in SHARDS)


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (("adapter_config.json", "adapter_model.safetensors"), "is an adapter"),
        (("config.json", "pytorch_model-00001-of-00002.bin"), "holds PyTorch pickles"),
        (("Q4_K_M/tune-Q4_K_M.gguf",), "holds a GGUF already"),
        (("config.json",), "has no model.safetensors.index.json"),
    ],
)
def test_a_repository_is_named_for_what_it_is(
    hub: HubServer, tmp_path: Path, names: tuple[str, ...], match: str
) -> None:
    hub.add(REPO, dict.fromkeys(names, b"{}"))
    with pytest.raises(GptOssError, match=match):
        fetch(tmp_path)


def test_a_revision_is_fetched_by_its_commit(hub: HubServer, tmp_path: Path) -> None:
    commit = hub.repos[REPO].push(repo_files(seed=1), revision="v2/rc")
    fetch(tmp_path, source=f"{REPO}@v2/rc")
    assert (tmp_path / SHARDS[0]).read_bytes() == repo_files(seed=1)[SHARDS[0]]
    resolved = [r.path for r in hub.requests if "/resolve/" in r.path]
    assert resolved
    assert all(f"/resolve/{commit}/" in path for path in resolved)


def test_files_from_elsewhere_are_hashed_and_kept(hub: HubServer, tmp_path: Path) -> None:
    (tmp_path / SHARDS[0]).write_bytes(repo_files()[SHARDS[0]])
    (tmp_path / SHARDS[1]).write_bytes(bytes(SHARD_BYTES))
    assert sorted(fetch(tmp_path)) == SHARDS
    assert [hub.sent[shard] for shard in SHARDS] == [0, SHARD_BYTES, SHARD_BYTES]


def test_several_shards_come_at_once(hub: HubServer, tmp_path: Path) -> None:
    for shard in SHARDS:
        hub.strike(shard, Fault(delay_s=0.005))
    fetch(tmp_path / "all", n_parallel=3)
    assert hub.n_most_parallel == 3


def test_a_shard_is_yielded_while_others_are_on_the_way(hub: HubServer, tmp_path: Path) -> None:
    for shard in SHARDS[:2]:
        hub.strike(shard, Fault(delay_s=0.01))
    with open_checkpoint(REPO, tmp_path) as checkpoint:
        checkpoint.fetch_small_files()
        shards = checkpoint.iter_shards()
        assert next(shards).name == SHARDS[2]
        assert not (tmp_path / SHARDS[0]).exists()
        assert {path.name for path in shards} == set(SHARDS[:2])


def test_two_downloads_into_one_folder(hub: HubServer, tmp_path: Path) -> None:
    with (
        open_checkpoint(REPO, tmp_path),
        pytest.raises(DownloadError, match="Another process"),
        open_checkpoint(REPO, tmp_path),
    ):
        pass


def test_a_used_shard_that_changed_is_not_mixed_with_new_ones(
    hub: HubServer, tmp_path: Path
) -> None:
    fetch(tmp_path)
    (tmp_path / SHARDS[0]).unlink()
    old = hub.repos[REPO].revisions["main"]
    hub.repos[REPO].push(repo_files(seed=1))
    with pytest.raises(DownloadError, match=f"{SHARDS[0]} has changed") as raised:
        fetch(tmp_path, skip={SHARDS[0]})
    assert f"@{old}" in raised.value.hint
    assert sorted(fetch(tmp_path, source=f"{REPO}@{old}", skip={SHARDS[0]})) == SHARDS[1:]


def test_offline_uses_what_is_complete(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(tmp_path)
    hub.requests.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert sorted(fetch(tmp_path)) == SHARDS
    (tmp_path / SHARDS[2]).unlink()
    with pytest.raises(DownloadError, match=f"lacks {SHARDS[2]}"):
        fetch(tmp_path)
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE forbids"):
        fetch(tmp_path / "empty")
    assert not hub.requests


@pytest.mark.quick
def test_a_token_goes_to_the_endpoint_and_not_to_the_cdn(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", MEMBER)
    hub.repos[REPO].private = hub.repos[REPO].gated = True
    fetch(tmp_path)
    tokens = {(request.host, request.authorization) for request in hub.requests}
    assert tokens == {("127.0.0.1", f"Bearer {MEMBER}"), ("localhost", None)}


@pytest.mark.quick
def test_the_local_hub_speaks_as_the_real_one(hub: HubServer, tmp_path: Path) -> None:
    """The library's own download takes it for one, over plain HTTP."""
    info = HfApi(endpoint=hub.endpoint).model_info(REPO, files_metadata=True)
    sizes = {sibling.rfilename: sibling.size for sibling in info.siblings or []}
    assert sizes[SHARDS[0]] == SHARD_BYTES
    for name in ("config.json", SHARDS[0]):
        path = hf_hub_download(REPO, name, endpoint=hub.endpoint, local_dir=tmp_path, token=False)
        content = hub.repos[REPO].commits[info.sha or ""][name]
        assert Path(path).read_bytes() == content
    found = get_hf_file_metadata(hf_hub_url(REPO, SHARDS[0], endpoint=hub.endpoint), token=False)
    assert found.commit_hash == hub.repos[REPO].revisions["main"]
    assert (found.size, len(found.etag or "")) == (SHARD_BYTES, 64)
    assert found.location.startswith("http://localhost:")
    assert found.xet_file_data is None
    hub.repos[REPO].gated = True
    for token in (False, STRANGER):
        with pytest.raises(GatedRepoError):
            hf_hub_download(
                REPO, "config.json", endpoint=hub.endpoint, local_dir=tmp_path / "2", token=token
            )
