"""Lines of the server's log: text for people, or JSON for programs that collect logs."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

from gptoss_local.server.request_id import current_request_id


def log_to_terminal(form: Literal["text", "json"]) -> None:
    """Log text to stderr, or JSON to stdout, which then has only objects."""
    if form == "json":
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(JsonLine())
        logging.captureWarnings(True)
    else:
        handler = logging.StreamHandler(sys.stderr)
        text = "%(asctime)s %(levelname)s %(message)s"
        handler.setFormatter(logging.Formatter(text, "%Y-%m-%d %H:%M:%S"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("gptoss").setLevel(logging.INFO)


class JsonLine(logging.Formatter):
    """Formats a record as a JSON object in ASCII: `time` (RFC 3339, UTC), `level`, `logger`,
    `message`; maybe `traceback`, and the `request_id` of the header `x-request-id`.
    """

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {
            "time": when.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := current_request_id():
            line["request_id"] = request_id
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)  # ASCII: it can be written to any terminal, half a surrogate, too
