"""Any gpt-oss of the hub as a model: `OWNER/NAME[@REVISION]`, a checkpoint or one GGUF, or `:FILE`.

`FILE` is a GGUF there, or a unique part of its name, such as `Q4_K_M`.
"""

from pathlib import Path

from gptoss_local.base.errors import DownloadError, ModelNotFoundError, UsageError
from gptoss_local.base.formats.gguf_file import split_files
from gptoss_local.models.catalog import (
    CatalogModel,
    Checkpoint,
    PublishedGGUF,
    canonical_name,
    hub_place,
    known_model,
    pull_advice,
)
from gptoss_local.models.hub import HubClient, Listing, is_offline
from gptoss_local.models.names import is_model_file


def pulled_model(name: str) -> CatalogModel:
    """Return the model of the catalogue for a name, or else ask the hub for it.

    Raises:
        ModelNotFoundError: Neither has it.
        UsageError: There are several GGUFs, and the name does not say which.
        DownloadError: The hub cannot be asked, or has no gpt-oss there.
    """
    wanted = canonical_name(name)
    if (known := known_model(wanted)) is not None:
        return known
    if (place := hub_place(name)) is None:
        raise ModelNotFoundError(f"the catalogue does not know {name}", hint=pull_advice(wanted))
    repo, file = place
    if is_offline():
        raise DownloadError(
            f"{name} is not on this machine, and HF_HUB_OFFLINE forbids asking the hub.",
            hint="Unset HF_HUB_OFFLINE.",
        )
    owner_and_name, _, revision = repo.partition("@")
    listing = HubClient().list_files(owner_and_name, revision or "main")
    if listing.architecture not in ("", "gpt-oss"):
        raise DownloadError(f"{repo} is a model of {listing.architecture}, not of gpt-oss.")
    shards = listing.expected_shards(original=False)
    if not file and shards and "config.json" in listing.files:
        checkpoint = Checkpoint(repo, sum(shard.size_bytes for shard in shards))
        return CatalogModel(name=wanted, checkpoint=checkpoint)
    names = tuple(part.as_posix() for part in split_files(Path(_chosen(listing, file))))
    size_bytes = sum(part.size_bytes for part in listing.named(names))
    return CatalogModel(name=wanted, gguf=PublishedGGUF(repo, names, size_bytes))


def _chosen(listing: Listing, file: str) -> str:
    found = sorted(each for each in listing.files if is_model_file(each))
    if not found:
        _ = listing.small_files(original=False)  # says what the repository is
    wanted = file.lower()
    matching = [each for each in found if wanted in each.lower()]
    exact = [each for each in matching if each.lower().rpartition("/")[2] == f"{wanted}.gguf"]
    if len(exact or matching) == 1:
        return (exact or matching)[0]
    names = ", ".join(matching or found) or "none"
    raise UsageError(
        f"{listing.repo} has {len(matching)} GGUFs {f'with {file}' if file else 'to choose from'}",
        hint=f"Name one, as in gptoss pull {listing.repo}:Q4_K_M. There: {names}",
    )
