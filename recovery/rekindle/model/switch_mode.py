"""Whether something that can be switched in a run is on or off now: upstream buffering, ordering.

Apart from the coordination that switches them, so that executors' hosts, which are told the mode
with each job, do not load the planner and its solvers to know the word.
"""

from typing import Final

ON: Final = "on"
OFF: Final = "off"
