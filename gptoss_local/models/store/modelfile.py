"""A model in the language of Ollama's `create -f`. Source: Ollama's docs/modelfile.mdx."""

import json
from typing import Any

from gptoss_local.models.store.models import ModelEntry


def parameter_lines(options: dict[str, Any]) -> list[tuple[str, str]]:
    """Return options as `ollama show` does: a line per value of a list, strings in quotes."""
    return [
        (name, json.dumps(value, ensure_ascii=False))
        for name, values in options.items()
        for value in (values if isinstance(values, list) else [values])
    ]


def render_modelfile(entry: ModelEntry) -> str:
    defaults = entry.defaults
    lines = ["# gptoss renders harmony itself", f"FROM {defaults.parent or entry.name}"]
    lines += [f"ADAPTER {entry.adapter}"] if entry.adapter else []
    lines += [f"PARAMETER {name} {value}" for name, value in parameter_lines(defaults.parameters)]
    lines += [f'SYSTEM """{defaults.system}"""'] if defaults.system else []
    lines += [f'MESSAGE {m.get("role")} """{m.get("content", "")}"""' for m in defaults.messages]
    lines += [f'LICENSE """{text}"""' for text in defaults.license]
    return "\n".join(lines) + "\n"
