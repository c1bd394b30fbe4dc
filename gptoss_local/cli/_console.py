"""Rich's console for bars and colours, which lets only our own styles through."""

import sys
from collections.abc import Iterable
from typing import IO, Any, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from gptoss_local.base.printable import CleanStream, shown


class CleanConsole(Console):
    """A console on stdout or stderr; texts are cleaned before they are styled."""

    def __init__(self, *, stderr: bool = False) -> None:
        stream = sys.stderr if stderr else sys.stdout
        file = cast(IO[str], _Raw(stream)) if isinstance(stream, CleanStream) else stream
        super().__init__(file=file, highlight=False, soft_wrap=not stderr)

    def print_item(self, sign: Text | str, text: Text | str) -> None:
        """Print a text after a sign; on a terminal its other rows begin below its first."""
        sign, text = (Text(each) if isinstance(each, str) else each for each in (sign, text))
        if not self.file.isatty():
            self.print(Text.assemble(sign, text))
            return
        for row in text.wrap(self, max(1, self.width - sign.cell_len)):
            row.rstrip()
            self.print(Text.assemble(sign, row))
            sign = Text(" " * sign.cell_len)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(shown(segment.text), segment.style)


class _Raw:
    def __init__(self, stream: CleanStream) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write_raw(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
