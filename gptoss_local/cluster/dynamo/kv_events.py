"""Tell Dynamo's router which blocks of tokens the cache of our engine holds."""

from typing import Any, Protocol

from gptoss_local.engine.protocol import BlocksChanged

N_BLOCK_TOKENS = 16
"""Dynamo compares prompts in steps of as many tokens."""


class Publisher(Protocol):
    """The method of `dynamo.llm.KvEventPublisher` that is used."""

    def publish_batch(self, events: list[dict[str, Any]]) -> None: ...


class KvEvents:
    """All that was published of one worker, whatever engine processes it has after each other.

    Thread: one event loop.
    """

    def __init__(self) -> None:
        self._publisher: Publisher | None = None
        self._held: set[int] = set()

    def start(self, publisher: Publisher) -> None:
        """Publish from now on; called before the worker takes requests, with an empty cache."""
        self._publisher = publisher

    def change(self, changed: BlocksChanged) -> None:
        """Publish what came and went."""
        self._held.difference_update(changed.removed)
        events: list[dict[str, Any]] = []
        if changed.removed:
            events.append({"type": "removed", "block_hashes": changed.removed})
        for run in changed.stored:
            self._held.update(run.hashes)
            events.append(
                {
                    "type": "stored",
                    "token_ids": run.tokens,
                    "num_block_tokens": [N_BLOCK_TOKENS] * len(run.hashes),
                    "block_hashes": run.hashes,
                    "parent_hash": run.parent,
                }
            )
        if self._publisher is not None:
            self._publisher.publish_batch(events)

    def clear(self) -> None:
        """Publish that nothing is held any more: the engine process is gone."""
        if self._held:
            self.change(BlocksChanged(removed=sorted(self._held), stored=[]))
