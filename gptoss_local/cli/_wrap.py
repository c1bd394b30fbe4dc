"""Break lines between words at the edge of a terminal, in text that is never redrawn."""

import re
import shutil

from rich.cells import cell_len

_ROOM = 16  # cells: with as many left in the row, a word is printed before it is complete
_TAB = 8
_LOOKED_AT = 200  # characters of a line
_CLUSTER = 8  # characters that may be drawn as one sign
_FENCE = re.compile(r"[\s>]*(?:[-*+]\s+|\d+[.)]\s+)?(`{3,}(?=[^`]*$)|~{3,})")
_ITEM = re.compile(r"[\s>]*(?:[-*+]|\d+[.)])(?:\s|$)")
_INDENT = re.compile(r"[ >]*?(?: {4}|\t)")


class WordWrap:
    """Wraps Markdown that comes in pieces, but not code and tables.

    A word near the edge is held back until it is known to fit.
    """

    def __init__(self) -> None:
        self._column = 0
        self._word, self._n_cells = "", 0  # held back
        self._is_cut = False  # the beginning of the word is printed already
        self._line = ""  # the beginning of the line, as far as it matters
        self._cluster = ""  # its last characters
        self._fence = ""  # the marker of the code that we are in
        self._is_list = False
        self._is_apart = True  # the line before is blank, or indented code

    def feed(self, text: str) -> str:
        """Take a piece and return the part that can be printed now."""
        width = shutil.get_terminal_size().columns
        printed = "".join(self._take(char, width) for char in text)
        if self._word and self._column + self._n_cells + _ROOM < width:
            printed += self.flush()
            self._is_cut = True
        return printed

    def flush(self) -> str:
        word, self._word = self._word, ""
        self._column += self._n_cells
        self._n_cells = 0
        return word

    def _take(self, char: str, width: int) -> str:
        if char == "\n":
            return self._end_line()
        if len(self._line) < _LOOKED_AT:
            self._line += char
        if self._is_verbatim():
            return self.flush() + char
        n_cells = self._cells_of(char)
        if char.isspace():
            return self._end_word(char, n_cells, width)
        broken = self._make_room(n_cells, width)
        self._word += char
        self._n_cells += n_cells
        if n_cells > 1 and cell_len(char) > 1:  # Chinese and Japanese break anywhere
            self._is_cut = False
            return broken + self.flush()
        return broken

    def _cells_of(self, char: str) -> int:
        """Return how much wider the line gets: several characters may make one sign."""
        if char == "\t":
            self._cluster = ""
            return _TAB - (self._column + self._n_cells) % _TAB
        before, self._cluster = self._cluster, (self._cluster + char)[-_CLUSTER:]
        return cell_len(before + char) - cell_len(before)

    def _is_verbatim(self) -> bool:
        text = self._line.lstrip(" \t>")
        if self._fence or text.startswith(("|", "```", "~~~")):
            return True
        is_code = self._is_apart and not self._is_list and bool(text)
        return is_code and bool(_INDENT.match(self._line))

    def _make_room(self, n_cells: int, width: int) -> str:
        if self._column + self._n_cells + n_cells <= width:
            return ""
        if self._is_cut or not self._column:
            word = self.flush()
            self._is_cut, self._column = True, 0  # the terminal itself begins the row
            return word
        self._column = 0
        return "\n"

    def _end_word(self, space: str, n_cells: int, width: int) -> str:
        word = self.flush()
        self._is_cut = False
        if self._column + n_cells > width:  # the edge itself separates the words
            return word
        self._column += n_cells
        return word + space

    def _end_line(self) -> str:
        line, is_verbatim = self._line, self._is_verbatim()
        marker = _FENCE.match(line)
        if self._fence:
            is_end = line.strip(" \t>").rstrip(self._fence[0]) == "" and self._fence in line
            self._fence = "" if is_end else self._fence
        elif marker is not None:
            self._fence = marker[1]
        elif _ITEM.match(line):
            self._is_list = True
        elif line[:1].strip(" >"):
            self._is_list = False
        self._is_apart = not line.strip(" \t>") or (is_verbatim and not marker)
        word = self.flush()
        self._column, self._line, self._cluster, self._is_cut = 0, "", "", False
        return word + "\n"
