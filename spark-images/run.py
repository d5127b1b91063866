"""The application that spark-submit is given: `rekindle run`, with the arguments of that command.

spark-submit ... local:///opt/rekindle/run.py PIPELINE.py --store FOLDER
"""

import sys

from rekindle_cli import command_line

sys.exit(command_line.run(command_line.application, ["run", *sys.argv[1:]]))
