"""The application that spark-submit is given: `rekindle run`, with the arguments of that command.

spark-submit ... local:///opt/rekindle/run.py PIPELINE.py --store FOLDER
"""

import sys

from rekindle_cli import cli

sys.exit(cli.run(cli.application, ["run", *sys.argv[1:]]))
