"""Hold sequences until a thread has made their masks; they queue afterwards."""

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait

from gptoss_local.base.errors import GptOssError
from gptoss_local.engine.worker.sampling.mask import Mask, MaskCompiler
from gptoss_local.engine.worker.sequence import Sequence


class Compiling:
    """Holds sequences until they have their masks; without `masks` none may need one."""

    def __init__(self, masks: MaskCompiler | None) -> None:
        self._masks = masks
        self._futures: dict[Sequence, Future[Mask]] = {}

    def __len__(self) -> int:
        return len(self._futures)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._futures)

    @property
    def is_possible(self) -> bool:
        return self._masks is not None

    def start(self, sequence: Sequence, grammar: str) -> None:
        if self._masks is None:
            raise RuntimeError("this engine cannot compile masks")
        self._futures[sequence] = self._masks.compile(grammar)

    def take_ready(self) -> list[tuple[Sequence, GptOssError | None]]:
        ready: list[tuple[Sequence, GptOssError | None]] = []
        for sequence in [s for s, mask in self._futures.items() if mask.done()]:
            try:
                sequence.mask = self._futures.pop(sequence).result()
            except GptOssError as error:
                ready.append((sequence, error))
            else:
                ready.append((sequence, None))
        return ready

    def wait(self, timeout_s: float) -> None:
        wait(self._futures.values(), timeout_s, FIRST_COMPLETED)

    def cancel(self, sequence: Sequence) -> bool:
        future = self._futures.pop(sequence, None)
        if future is not None:
            future.cancel()
        return future is not None
