"""Files from the Hugging Face hub: resumable, checked while they arrive, shard by shard.

`listing` says what a repository holds and what of it makes a checkpoint, `client` speaks with the
hub, `partial` is a file that grows, `folder` knows what is on the disk, `transfer` brings files
there, `download` joins them; `cache` is what huggingface_hub itself has on the disk. Nothing here
knows what is inside a file.
"""

import gptoss_local.models.hub._environment  # noqa: F401 - before whatever imports huggingface_hub
from gptoss_local.models.hub.cache import CachedRepo, cached_repos
from gptoss_local.models.hub.client import HubClient
from gptoss_local.models.hub.download import HubCheckpoint, download_files, open_checkpoint
from gptoss_local.models.hub.folder import DownloadFolder
from gptoss_local.models.hub.listing import HubFile, Listing
from gptoss_local.models.hub.transfer import is_offline

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
