"""The sidecar's process: `rekindle sidecar` becomes it, with its options as one JSON argument.

It imports nothing of the command line. Exit codes are those of `rekindle`.
"""

import signal
import sys

import msgspec

from rekindle import interrupts
from rekindle.model.errors import InputError, RekindleError
from rekindle_sidecar.sidecar_options import SidecarOptions


def main() -> int:
    """Serves; returns the exit code."""
    interrupts.end_at_once(signal.SIGTERM)
    from rekindle_sidecar import sidecar_process  # what it imports takes its time

    try:
        with interrupts.raised():
            sidecar_process.serve(_options(sys.argv[1:]))
    except KeyboardInterrupt:
        return interrupts.INTERRUPTED
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
