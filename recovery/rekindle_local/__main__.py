"""Runs the command line as `python -m rekindle_local`."""

from rekindle_local.cli import main

raise SystemExit(main())
