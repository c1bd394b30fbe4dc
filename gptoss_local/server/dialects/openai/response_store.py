"""Remembers answers of `/v1/responses` for their owners, in bounded memory, in one event loop.

Source: OpenAI's API reference (Responses: get, delete, list input items, previous_response_id).
"""

from typing import Any

import msgspec

from gptoss_local.base.errors import ResponseNotFoundError
from gptoss_local.base.fair_store import FairStore

MAX_BYTES = 64 * 1024 * 1024
_OVERHEAD_BYTES = 1024  # of a record, about, besides its JSON

WireItem = dict[str, Any]


class _Record(msgspec.Struct, frozen=True):
    """The conversation up to the answer and the response object, both as JSON."""

    items: bytes
    response: bytes
    output_ids: tuple[str, ...]

    @property
    def n_bytes(self) -> int:
        return len(self.items) + len(self.response) + _OVERHEAD_BYTES


class ResponseStore:
    """Responses by owner and id; one larger than `max_bytes` is not kept."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._records = FairStore[_Record](max_bytes, lambda record: record.n_bytes)
        self._response_ids: dict[str, str] = {}  # by ids of output items

    def add(self, owner: str, items: list[WireItem], response: dict[str, Any]) -> None:
        """Keep an answer, and all items before it from the start of the conversation."""
        record = _Record(
            msgspec.json.encode(items),
            msgspec.json.encode(response),
            tuple(item["id"] for item in response["output"]),
        )
        self._response_ids.update(dict.fromkeys(record.output_ids, response["id"]))
        for gone in self._records.put(owner, response["id"], record):
            self._forget(gone)

    def response(self, owner: str, response_id: str) -> dict[str, Any]:
        response: dict[str, Any] = msgspec.json.decode(self._find(owner, response_id).response)
        return response

    def items(self, owner: str, response_id: str) -> list[WireItem]:
        """Return the input of an answer, from the first item. Raises ResponseNotFoundError."""
        items: list[WireItem] = msgspec.json.decode(self._find(owner, response_id).items)
        return items

    def conversation(self, owner: str, response_id: str) -> list[WireItem]:
        """Return all items up to the end of the answer. Raises ResponseNotFoundError."""
        output: list[WireItem] = self.response(owner, response_id)["output"]
        return self.items(owner, response_id) + output

    def output_item(self, owner: str, item_id: str) -> WireItem:
        record = self._records.get(owner, self._response_ids.get(item_id, ""))
        if record is None:
            raise _not_found("Item", item_id)
        output: list[WireItem] = msgspec.json.decode(record.response)["output"]
        return next(item for item in output if item["id"] == item_id)

    def delete(self, owner: str, response_id: str) -> None:
        """Forget an answer; others that continue it stay. Raises ResponseNotFoundError."""
        self._forget(self._find(owner, response_id))
        self._records.pop(owner, response_id)

    def _find(self, owner: str, response_id: str) -> _Record:
        record = self._records.get(owner, response_id)
        if record is None:
            raise _not_found("Response", response_id)
        return record

    def _forget(self, record: _Record) -> None:
        for item_id in record.output_ids:
            del self._response_ids[item_id]


def _not_found(what: str, wanted: str) -> ResponseNotFoundError:
    return ResponseNotFoundError(
        f"{what} with id '{wanted}' not found",
        hint="The server remembers its last answers until it ends; send the whole conversation.",
    )
