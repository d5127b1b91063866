"""Runs the operator: `rekindle-operator`, or `python -m rekindle_operator`."""

import signal

from rekindle import interrupts


def main() -> None:
    """Runs the command that the process was started with; exits."""
    interrupts.end_at_once(signal.SIGTERM)
    from rekindle_operator.controller import operator_main  # what it imports takes its time

    operator_main.main()


if __name__ == "__main__":
    main()
