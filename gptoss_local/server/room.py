"""Room for large request bodies: how many bytes of them there are at the same time."""

import asyncio
from collections import deque


class Room:
    """So many bytes, of which each request takes its part before it uses them.

    Requests get in one after the other: a large one is not overtaken by those that need less.
    Thread: one event loop.
    """

    def __init__(self, n_bytes: int) -> None:
        self._n_free = n_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, n_bytes: int) -> "Place":
        """Wait until so much is free, and return it; a cancelled wait takes nothing."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((n_bytes, turn))
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._let_in()  # those after it
            else:  # it got in at the same moment
                self.give_back(n_bytes)
            raise
        return Place(self, n_bytes)

    def give_back(self, n_bytes: int) -> None:
        """Free a part for those that wait."""
        self._n_free += n_bytes
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            n_bytes, turn = self._waiting[0]
            if not turn.cancelled():
                if n_bytes > self._n_free:
                    return
                self._n_free -= n_bytes
                turn.set_result(None)
            self._waiting.popleft()


class Place:
    """The part of a room that one request has."""

    def __init__(self, room: Room, n_bytes: int) -> None:
        self._room = room
        self._n_bytes = n_bytes

    def shrink(self, n_bytes: int) -> None:
        """Keep so much at most, and give back the rest."""
        n_left_over = max(0, self._n_bytes - n_bytes)
        self._n_bytes -= n_left_over
        self._room.give_back(n_left_over)

    def leave(self) -> None:
        """Give back all of it; a second time does nothing."""
        self.shrink(0)
