"""Runs the plugin: `python -m rekindle_operator.kubectl` is `kubectl rekindle`."""

import sys

from rekindle_operator.kubectl.plugin_main import main

sys.exit(main())
