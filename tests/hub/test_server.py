"""The local hub speaks as the real one does: huggingface_hub's own download takes it for one."""

from pathlib import Path

import pytest
from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.errors import GatedRepoError

from tests.hub.conftest import REPO, SHARD_BYTES, SHARDS
from tests.hub.server import STRANGER, HubServer

pytestmark = pytest.mark.quick


def test_the_real_library_lists_and_downloads(hub: HubServer, tmp_path: Path) -> None:
    info = HfApi(endpoint=hub.endpoint).model_info(REPO, files_metadata=True)
    sizes = {sibling.rfilename: sibling.size for sibling in info.siblings or []}
    assert sizes[SHARDS[0]] == SHARD_BYTES
    for name in ("config.json", SHARDS[0]):
        path = hf_hub_download(REPO, name, endpoint=hub.endpoint, local_dir=tmp_path, token=False)
        content = hub.repos[REPO].commits[info.sha or ""][name]
        assert Path(path).read_bytes() == content


def test_head_tells_what_the_real_hub_tells(hub: HubServer) -> None:
    found = get_hf_file_metadata(hf_hub_url(REPO, SHARDS[0], endpoint=hub.endpoint), token=False)
    assert found.commit_hash == hub.repos[REPO].revisions["main"]
    assert (found.size, len(found.etag or "")) == (SHARD_BYTES, 64)
    assert found.location.startswith("http://localhost:")
    assert found.xet_file_data is None  # so the library uses plain HTTP


@pytest.mark.parametrize("token", [False, STRANGER])
def test_gated_files_raise_in_the_real_library(
    hub: HubServer, token: str | bool, tmp_path: Path
) -> None:
    hub.repos[REPO].gated = True
    with pytest.raises(GatedRepoError):
        hf_hub_download(REPO, "config.json", endpoint=hub.endpoint, local_dir=tmp_path, token=token)
