"""Runs the command line as `python -m rekindle_cli`."""

from rekindle_cli.command_line import main

raise SystemExit(main())
