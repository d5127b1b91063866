"""What tests of peers and chaos share: where their processes find the modules."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
