"""The flights as ordinary Structured Streaming, which Rekindle is compared with, for spark-submit.

spark-submit ... local:///opt/rekindle/structured_streaming.py INPUT --store FOLDER ...
"""

import sys

from rekindle_local.structured_streaming.__main__ import main

sys.exit(main())
