"""Checkpoints from the Hugging Face hub: resumable, checked, shard by shard.

`listing` says what a repository holds and what of it makes a checkpoint, `client` speaks with the
hub, `folder` knows what is on the disk, `download` joins them. Nothing here knows what is inside a
file.
"""

from gptoss_local.hub.download import HubCheckpoint, open_checkpoint

__all__ = ["HubCheckpoint", "open_checkpoint"]
