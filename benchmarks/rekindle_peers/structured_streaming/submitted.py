"""The program that spark-submit is given where this package is on PYTHONPATH, as on Kubernetes.

spark-submit ... submitted.py INPUT --store FOLDER ...
"""

import sys

from rekindle_peers.structured_streaming.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
