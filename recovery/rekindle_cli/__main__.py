"""Runs the command line as `python -m rekindle_cli`."""

from rekindle_cli.cli import main

raise SystemExit(main())
