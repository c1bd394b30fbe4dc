"""Files from the Hugging Face hub: resumable, checked while they arrive, shard by shard."""

import gptoss_local.models.hub._environment  # noqa: F401 - before huggingface_hub
from gptoss_local.models.hub.cache import CachedRepo, cached_repos
from gptoss_local.models.hub.client import HubClient
from gptoss_local.models.hub.download import (
    HubCheckpoint,
    download_files,
    is_offline,
    open_checkpoint,
)
from gptoss_local.models.hub.folder import DownloadFolder
from gptoss_local.models.hub.listing import HubFile, Listing

__all__ = [
    "CachedRepo",
    "DownloadFolder",
    "HubCheckpoint",
    "HubClient",
    "HubFile",
    "Listing",
    "cached_repos",
    "download_files",
    "is_offline",
    "open_checkpoint",
]
