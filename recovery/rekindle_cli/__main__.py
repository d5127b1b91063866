"""Runs the command line: `rekindle`, or `python -m rekindle_cli`."""

import sys

from rekindle import interrupts

# The command itself comes with every installation, and what it is made of with some extras only.
WITHOUT_TYPER = (
    "rekindle: commands need typer, which is not installed; install rekindle[run], or "
    "rekindle[output] to read output alone"
)


def main() -> int:
    """Run the command that the process was started with; return the exit code."""
    interrupts.end_at_once()
    try:
        from rekindle_cli import command_line  # what it imports takes its time
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        print(WITHOUT_TYPER, file=sys.stderr)
        return 2
    return command_line.main()


if __name__ == "__main__":
    sys.exit(main())
