"""Made-up values that the widgets show."""

from pathlib import Path
from typing import Any

from gptoss_local.base.settings import Settings, ToolCommand
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.frames import events_of
from gptoss_local.talk.history import Turn
from gptoss_local.talk.tools import Toolbox, ToolSources

GIB = 2**30

MARKDOWN = """\
# Title

Some **bold** words, *slanted* ones and `code`, then 日本語 and a [link](http://x.test).

- one
- two

> quoted

| model | size |
|-------|-----:|
| 20b   |   12 |
| 120b  |   60 |

```python
def f(x: int) -> int:
    return x + 1
```
"""
REASONING = "\n".join(f"Thought {n}, of which there are nine." for n in range(1, 10))
STATS: dict[str, Any] = {
    "prompt_eval_count": 1200, "prompt_cached_count": 1000, "prompt_eval_duration": 100_000_000,
    "eval_count": 50, "eval_duration": 500_000_000, "load_duration": 2_500_000_000,
    "total_duration": 3_100_000_000, "ttft_s": 2.75, "reasoning_s": 0.4, "n_reasoning_frames": 18,
    "latencies_ms": [9.0, 10.0, 12.0, 8.0, 30.0, 9.5, 10.5, 11.0],
}  # fmt: skip
CALL = {"function": {"name": "get_weather", "arguments": {"location": "Tokyo", "days": 3}}}


def turn(role: Any, content: str, **fields: Any) -> Turn:
    """A turn that no file has."""
    return Turn(id=1, chat_id=1, parent_id=None, role=role, content=content, created_s=0, **fields)


def answered(content: str = "Paris.", **fields: Any) -> Turn:
    """An answer with reasoning that took a time."""
    whole = {"reasoning": REASONING, "stats": STATS, "model": "nano", "effort": "medium"}
    return turn("assistant", content, **(whole | fields))


def streaming(*frames: dict[str, Any], step_s: float = 0.5, progress: Any = None) -> Answer:
    """An answer that streams: one frame each `step_s` seconds, and now it is `step_s` later."""
    now = [0.0]
    answer = Answer(clock=lambda: now[0])
    if progress is not None:
        frames = ({"prompt_progress": progress}, *frames)
    for frame in frames:
        now[0] += step_s
        for event in events_of({"message": {}, "done": False} | frame):
            answer.add(event)
    now[0] += step_s
    return answer


def thinking(*pieces: str) -> list[dict[str, Any]]:
    return [{"message": {"thinking": piece}} for piece in pieces]


def saying(*pieces: str) -> list[dict[str, Any]]:
    return [{"message": {"content": piece}} for piece in pieces]


WEATHER = ToolCommand(
    command=("weather", "{location}"),
    description="Gets the weather of a city.",
    parameters={"type": "object", "properties": {"location": {"type": "string"}}},
)


def toolbox() -> Toolbox:
    """One tool of the user that is trusted, and those that are built in."""
    box = ToolSources(Settings(tools={"get_weather": WEATHER}), Path(".")).toolbox()
    box.trusted.add("get_weather")
    return box
