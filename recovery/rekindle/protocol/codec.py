"""Bytes from outside into messages, and messages into bytes.

Whatever comes is checked against the message's type before anything looks at it: size, nesting,
kinds, limits. InputError names the field. `schema` publishes the same rules as JSON Schema.
"""

from typing import Any, NoReturn, TypeVar

import msgspec

from rekindle.model.errors import InputError
from rekindle.protocol import messages

MESSAGE_BYTES_MAX = 16 << 20

PUBLISHED: tuple[Any, ...] = (
    messages.Handshake,
    messages.HandshakeAnswer,
    messages.TopologyReport,
    messages.ProgressReport,
    messages.StatisticsReport,
    messages.CheckpointReport,
    messages.Directive,
    messages.Acknowledgement,
    messages.Heartbeat,
    messages.Orders,
)
Kind = TypeVar("Kind")


def encode(message: Any) -> bytes:
    """JSON, fields in the order of the type."""
    return msgspec.json.encode(message)


def decode(data: bytes, kind: type[Kind], where: str) -> Kind:
    """The message in `data`; InputError names the place `where`, the field and what is wrong."""
    if len(data) > MESSAGE_BYTES_MAX:
        _refuse(where, f"has {len(data)} bytes, {MESSAGE_BYTES_MAX} are the limit")
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        what = str(error) or type(error).__name__
        _refuse(where, what[:1].lower() + what[1:200])


def schema() -> dict[str, Any]:
    """JSON Schema of all messages, by name under `$defs`."""
    _, definitions = msgspec.json.schema_components(PUBLISHED, ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rekindle's protocol",
        "$defs": definitions,
    }


def _refuse(where: str, what: str) -> NoReturn:
    raise InputError(where=where, what=what, remedy="send it as docs/protocol.md says")
