"""The sidecar's log: one line of JSON per event, on standard error.

`event` is a word to search for, the other fields belong to it. What libraries say has the event
`log`. Secrets and bodies of messages are not logged.
"""

import logging
import sys
from typing import Any

import msgspec

LOG = logging.getLogger("rekindle_sidecar")


class JsonLines(logging.Formatter):
    """Formats records of `tell` and of libraries."""

    def format(self, record: logging.LogRecord) -> str:
        """One line: no text breaks it, since JSON escapes line breaks."""
        line = {"at": round(record.created, 3), "level": record.levelname.lower()}
        fields = getattr(record, "fields", None)
        if fields is not None:
            line |= {"event": record.msg, **fields}
        else:
            line |= {"event": "log", "logger": record.name, "text": record.getMessage()}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def configure() -> None:
    """Send everything from INFO on to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def tell(event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event with its fields."""
    LOG.log(level, event, extra={"fields": fields})
