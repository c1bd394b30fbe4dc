"""Files from the Hugging Face hub: resumable, checked while they arrive, shard by shard."""

from gptoss_local.base.errors import UsageError

try:
    import huggingface_hub.constants  # reads the environment
except ValueError as error:
    raise UsageError(
        f"A variable of the hub is wrong: {error}.",
        hint="Check HF_ENDPOINT, as https://huggingface.co, and HF_HUB_DOWNLOAD_TIMEOUT, as 10.",
    ) from error

from gptoss_local.models.hub.client import HubClient
from gptoss_local.models.hub.download import (
    HubCheckpoint,
    download_files,
    is_offline,
    open_checkpoint,
)
from gptoss_local.models.hub.folder import DownloadFolder
from gptoss_local.models.hub.listing import TOKENIZER_NAMES, HubFile, Listing
