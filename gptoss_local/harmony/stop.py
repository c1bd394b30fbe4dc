"""Stop strings: end the answer where one of them begins, also across event borders."""


class StopFilter:
    """Looks for stop strings in pieces of text; `found` is the one that ended it.

    It holds back as little as possible: text that may begin a stop string.
    """

    def __init__(self, stop: tuple[str, ...]) -> None:
        self._stop = tuple(s for s in stop if s)
        self._held = ""
        self.found = ""

    @property
    def is_stopped(self) -> bool:
        return bool(self.found)

    def feed(self, text: str) -> str:
        """Return the part of the text that is certainly before any stop string."""
        if not self._stop:
            return text
        text = self._held + text
        starts = [(at, s) for s in self._stop if (at := text.find(s)) >= 0]
        if starts:
            start, self.found = min(starts)
            self._held = ""
            return text[:start]
        n_held = max(_n_begun(text, s) for s in self._stop)
        self._held = text[len(text) - n_held :]
        return text[: len(text) - n_held]

    def flush(self) -> str:
        """Return the text held back when the answer ends without a stop string."""
        held, self._held = self._held, ""
        return held


def _n_begun(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that begins `stop`."""
    for n in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:n]):
            return n
    return 0
