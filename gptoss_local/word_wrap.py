"""Break lines between words at the edge of a terminal, in text that is never redrawn."""

import shutil

from rich.cells import get_character_cell_size

_ROOM = 16  # cells: with as many left in the row, a word is printed before it is complete


class WordWrap:
    """Breaks lines between words at the terminal's edge, in text that comes in pieces.

    Nothing is redrawn: a word near the edge is held back until it is known to fit. Code in fences
    and tables stay as they are.
    """

    def __init__(self) -> None:
        self._column = 0
        self._word, self._n_cells = "", 0  # held back
        self._is_cut = False  # the beginning of the word is printed already
        self._line = ""  # the beginning of the line, as far as it matters
        self._is_code = False

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
        if len(self._line) < 3 and (self._line or not char.isspace()):
            self._line += char
        if self._is_code or self._line.startswith(("|", "```")):
            return self.flush() + char
        n_cells = get_character_cell_size(char)
        if char.isspace():
            return self._end_word(char, n_cells, width)
        broken = self._make_room(n_cells, width)
        self._word += char
        self._n_cells += n_cells
        if n_cells > 1:  # Chinese and Japanese break anywhere
            self._is_cut = False
            return broken + self.flush()
        return broken

    def _make_room(self, n_cells: int, width: int) -> str:
        """Begin a row where the word has no room; one that is longer than a row is cut there."""
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
        if self._line.startswith("```"):
            self._is_code = not self._is_code
        word = self.flush()
        self._column, self._line, self._is_cut = 0, "", False
        return word + "\n"
