"""Define what runs code for one chat, and what comes of it."""

from typing import NamedTuple, Protocol


class PythonOutcome(NamedTuple):
    """The outcome of one call.

    Attributes:
        text: What was printed, the value of a last expression, and a traceback.
        is_error: The code failed or was stopped.
        is_lost: Variables are gone, and the engine cannot be used again.
    """

    text: str
    is_error: bool = False
    is_lost: bool = False


class PythonEngine(Protocol):
    """Runs code, one call after the other, and keeps variables between them.

    Thread: one event loop.
    """

    async def run(self, code: str) -> PythonOutcome:
        """Run code; start what is needed first. Cancelling it ends the engine.

        Raises:
            UsageError: it does not start.
        """

    def kill(self) -> None:
        """Begin to end what it has started, immediately and without waiting."""

    async def close(self) -> None:
        """End what it has started, and wait for that."""
