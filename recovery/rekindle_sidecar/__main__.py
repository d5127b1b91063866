"""The sidecar's process: `rekindle sidecar` becomes it, with its options as one JSON argument.

It imports nothing of the command line. Exit codes are those of `rekindle`.
"""

import sys

import msgspec

from rekindle.model.errors import InputError, RekindleError
from rekindle_sidecar.sidecar_options import SidecarOptions
from rekindle_sidecar.sidecar_process import serve


def main() -> int:
    """Serves; returns the exit code."""
    try:
        serve(_options(sys.argv[1:]))
    except RekindleError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


def _options(arguments: list[str]) -> SidecarOptions:
    try:
        (text,) = arguments
        return msgspec.json.decode(text, type=SidecarOptions)
    except (ValueError, msgspec.MsgspecError) as error:
        raise InputError(
            where="rekindle_sidecar",
            what="has not been started by `rekindle sidecar`",
            remedy="start that, see `rekindle sidecar --help`",
        ) from error


if __name__ == "__main__":
    sys.exit(main())
