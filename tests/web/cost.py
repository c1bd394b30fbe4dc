"""The processor time that a page takes. Other programs add little, unless they share its core."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page


@contextmanager
def traced(page: Page) -> Iterator[list[float]]:
    """Collect the milliseconds that each task of the page's main thread takes of the processor.

    The promises that are settled after a task count as one more.
    """
    browser = page.context.browser
    assert browser is not None
    tasks: list[float] = []
    browser.start_tracing(page=page, categories=["toplevel", "__metadata"])
    try:
        yield tasks
    finally:
        events = json.loads(browser.stop_tracing())["traceEvents"]
    names = [each for each in events if each["name"] == "thread_name"]
    main = {
        (each["pid"], each["tid"]) for each in names if each["args"]["name"] == "CrRendererMain"
    }
    ends = dict.fromkeys(main, 0)
    for each in sorted(events, key=lambda each: (each["ts"], -each.get("dur", 0))):
        thread = each["pid"], each["tid"]
        if thread in main and "tdur" in each and each["ts"] >= ends[thread]:  # it is in no other
            ends[thread] = each["ts"] + each["dur"]
            tasks.append(each["tdur"] / 1000)
    assert sum(tasks) > 0, "nothing was traced"


def slow_ms(tasks: list[float]) -> float:
    """Return the 95th percentile of the tasks that take a millisecond and more."""
    long = sorted(each for each in tasks if each >= 1)
    return long[int(len(long) * 0.95)] if long else 0.0
