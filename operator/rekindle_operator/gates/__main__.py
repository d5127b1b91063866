"""Runs `rekindle-release-gates`, or `python -m rekindle_operator.gates`."""

import signal

from rekindle import interrupts


def main() -> None:
    """Runs the command that the process was started with; exits."""
    interrupts.end_at_once(signal.SIGTERM)
    from rekindle_operator.gates import gate_release  # what it imports takes its time

    gate_release.main()


if __name__ == "__main__":
    main()
