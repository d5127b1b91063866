"""Runs the plugin: `python -m rekindle_operator.plugin` is `kubectl rekindle`."""

import sys

from rekindle_operator.plugin.main import main

sys.exit(main())
