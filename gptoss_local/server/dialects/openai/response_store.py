"""Remembers answers of `/v1/responses`, so that the next request can continue from them.

In memory only, as long as the server lives, and bounded: the least recently used goes first. Every
record holds its whole conversation, so none depends on another. Thread: one event loop.

Source: OpenAI's API reference (Responses: get, delete, list input items, previous_response_id).
"""

from collections import OrderedDict
from typing import Any

import msgspec

from gptoss_local.errors import ResponseNotFoundError

N_RESPONSES_MAX = 1000
MAX_BYTES = 64 * 1024 * 1024  # as JSON, which is also how they are kept

WireItem = dict[str, Any]


class _Record(msgspec.Struct, frozen=True):
    """Both as JSON: the conversation up to the answer, and the response object."""

    items: bytes
    response: bytes
    output_ids: tuple[str, ...]

    @property
    def n_bytes(self) -> int:
        return len(self.items) + len(self.response)


class ResponseStore:
    """Responses by id.

    Args:
        n_max: How many are kept.
        max_bytes: Of all of them; one that is larger is not kept at all.
    """

    def __init__(self, n_max: int = N_RESPONSES_MAX, max_bytes: int = MAX_BYTES) -> None:
        self._n_max = n_max
        self._max_bytes = max_bytes
        self._records: OrderedDict[str, _Record] = OrderedDict()  # the least recently used first
        self._owners: dict[str, str] = {}  # response ids by ids of output items
        self.n_bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def add(self, items: list[WireItem], response: dict[str, Any]) -> None:
        """Keep an answer.

        Args:
            items: Its conversation, from the first item on, without the answer.
            response: The response object, complete.
        """
        record = _Record(
            msgspec.json.encode(items),
            msgspec.json.encode(response),
            tuple(item["id"] for item in response["output"]),
        )
        self._records[response["id"]] = record
        self._owners.update(dict.fromkeys(record.output_ids, response["id"]))
        self.n_bytes += record.n_bytes
        while len(self._records) > self._n_max or self.n_bytes > self._max_bytes:
            self._remove(next(iter(self._records)))

    def response(self, response_id: str) -> dict[str, Any]:
        """Return the response object. Raises ResponseNotFoundError."""
        response: dict[str, Any] = msgspec.json.decode(self._find(response_id).response)
        return response

    def items(self, response_id: str) -> list[WireItem]:
        """Return the input of an answer, from the first item. Raise ResponseNotFoundError."""
        items: list[WireItem] = msgspec.json.decode(self._find(response_id).items)
        return items

    def conversation(self, response_id: str) -> list[WireItem]:
        """Return all items up to the end of the answer. Raises ResponseNotFoundError."""
        output: list[WireItem] = self.response(response_id)["output"]
        return self.items(response_id) + output

    def output_item(self, item_id: str) -> WireItem:
        """Return one item of an answer. Raises ResponseNotFoundError."""
        if item_id not in self._owners:
            raise _not_found("Item", item_id)
        output: list[WireItem] = self.response(self._owners[item_id])["output"]
        return next(item for item in output if item["id"] == item_id)

    def delete(self, response_id: str) -> None:
        """Forget an answer; others that continue it stay. Raise ResponseNotFoundError."""
        self._find(response_id)
        self._remove(response_id)

    def _find(self, response_id: str) -> _Record:
        record = self._records.get(response_id)
        if record is None:
            raise _not_found("Response", response_id)
        self._records.move_to_end(response_id)
        return record

    def _remove(self, response_id: str) -> None:
        record = self._records.pop(response_id)
        self.n_bytes -= record.n_bytes
        for item_id in record.output_ids:
            del self._owners[item_id]


def _not_found(what: str, wanted: str) -> ResponseNotFoundError:
    return ResponseNotFoundError(
        f"{what} with id '{wanted}' not found",
        hint="The server remembers its last answers until it ends; send the whole conversation.",
    )
