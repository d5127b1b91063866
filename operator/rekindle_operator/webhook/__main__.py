"""Runs the webhook: `rekindle-webhook`, or `python -m rekindle_operator.webhook`."""

import signal

from rekindle import interrupts


def main() -> None:
    """Runs the command that the process was started with; exits."""
    interrupts.end_at_once(signal.SIGTERM)
    from rekindle_operator.webhook import webhook_main  # what it imports takes its time

    webhook_main.main()


if __name__ == "__main__":
    main()
