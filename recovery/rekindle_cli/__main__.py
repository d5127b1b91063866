"""Runs the command line: `rekindle`, or `python -m rekindle_cli`."""

import sys

from rekindle import interrupts


def main() -> int:
    """Run the command that the process was started with; return the exit code."""
    interrupts.end_at_once()
    from rekindle_cli import command_line  # what it imports takes its time

    return command_line.main()


if __name__ == "__main__":
    sys.exit(main())
