"""How the commands in e2e end: 0 done; 1 failed; 2 wrong usage or bad input; 130 interrupted.

Errors are said on standard error, a line each. The `__main__` modules call it.
"""

import sys
from collections.abc import Callable

from rekindle import interrupts
from rekindle.model.errors import InputError, RekindleError


def exit_code(action: Callable[[], int | None]) -> int:
    """Carry out an action; its own exit code, or that of the error with which it ended."""
    try:
        with interrupts.raised():
            return action() or 0
    except RekindleError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        return interrupts.INTERRUPTED
