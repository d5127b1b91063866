"""Runs the plugin: `kubectl rekindle`, or `python -m rekindle_operator.kubectl`."""

import sys

from rekindle import interrupts


def main() -> int:
    """Runs the command that the process was started with; returns the exit code."""
    interrupts.end_at_once()
    from rekindle_operator.kubectl import plugin_main  # what it imports takes its time

    return plugin_main.main()


if __name__ == "__main__":
    sys.exit(main())
