"""Files that are attached to a message: their text, and how many tokens it takes."""

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from gptoss_local.api.gptoss import AttachedFile, TokenCount
from gptoss_local.base.errors import UsageError
from gptoss_local.base.off_loop import Check, run_off_loop
from gptoss_local.base.quantities import counted
from gptoss_local.harmony import load_vocabulary
from gptoss_local.harmony.budget import TokenBudget
from gptoss_local.server.body import read_body, read_bytes
from gptoss_local.server.streaming import json_response, while_connected
from gptoss_local.talk.documents import UnreadableFile, fenced, read_document

_reading = asyncio.Semaphore(2)  # a large document takes seconds of a core, and gigabytes


class TextBody(msgspec.Struct):
    text: str = ""


async def count_tokens(request: Request) -> Response:
    """Count by the vocabulary of gpt-oss; loads no model."""
    body = await read_body(request, TextBody)
    return json_response(TokenCount(await while_connected(request, _n_tokens(body.text))))


async def read_file(request: Request) -> Response:
    name, data = request.query_params.get("name", ""), await read_bytes(request)
    return json_response(await while_connected(request, _attached(name, data)))


async def _attached(name: str, data: bytes) -> AttachedFile:
    name = " ".join(name.split())
    if not name:
        raise UsageError("a file needs a name", hint="Send it as ?name=notes.md.")
    try:
        async with _reading:
            found = await read_document(name, data)
    except UnreadableFile as error:
        raise UsageError(f"{name} {error.why}", hint=error.hint) from error
    text = fenced(name, found.text)
    tokens = counted(await _n_tokens(text), "token")
    label = f"{found.kind}: {name}, {found.length}, {tokens}".replace("]", ")")
    return AttachedFile(label, text)


async def _n_tokens(text: str) -> int:
    def count(check: Check) -> int:
        return len(load_vocabulary().encode(text, TokenBudget(check=check)))

    return await run_off_loop(count, len(text))
