"""Print the checks of a bench as rows of a table, each right or wrong."""

import time


class Report:
    """Print a table, row by row, and count."""

    def __init__(self) -> None:
        self._n = self._n_wrong = 0
        self._start_s = time.monotonic()
        self.begin()

    def begin(self) -> None:
        """Begin the table, again if something else was printed."""
        print("\n| what | found | wanted | |\n|---|---|---|---|", flush=True)

    def add(self, what: str, value: str, wanted: str, *, is_right: bool) -> None:
        self._n += 1
        self._n_wrong += not is_right
        mark = "ok" if is_right else "WRONG"
        print(f"| {what} | {value} | {wanted} | {mark} |", flush=True)

    def ratio(self, what: str, ours: float, theirs: float, least: float, unit: str) -> None:
        value = f"{ours:,.4g} / {theirs:,.4g} {unit} = {ours / theirs:.2f}"
        self.add(what, value, f">= {least}", is_right=ours / theirs >= least)

    def least(self, what: str, value: float, most: float) -> None:
        self.add(what, f"{value:.3g}", f"<= {most:g}", is_right=value <= most)

    def end(self) -> int:
        """Print how many rows are wrong; return the exit code."""
        seconds = time.monotonic() - self._start_s
        print(f"\n{self._n} checks, {self._n_wrong} wrong, {seconds:.0f} s", flush=True)
        return int(self._n_wrong > 0)
