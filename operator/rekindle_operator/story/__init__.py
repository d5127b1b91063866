"""The story of an incident: what the core decides and sees, told in the status of a Recovery.

    scene      what is known of an application at a moment
    sightings  detection's verdicts as moments of nodes
    nodes      which nodes were lost, suspected, and came back; and the driver
    requests   requests for nodes, and what became of them
    plans      the plans, and what the driver did with them
    waiting    why what waits does so
    queries    when each query was lost, planned, back
    phases     how far it is, why, and the conditions that say so
    words      the words that the core's list of reasons does not have
    telling    all of it as the next status: `tell`

Each telling looks at how things are, not at what has just happened, and goes on from the status as
the API server holds it. So it may be repeated, and whoever is killed between deciding and writing
leaves nothing out that the next one cannot see. Pure; the operator's shell writes what is new.
`stories` has the values, and their limits.
"""

from rekindle_operator.story.scene import Cluster, Fenced, Scene, Sighting, Terms
from rekindle_operator.story.sightings import settled, sighted
from rekindle_operator.story.telling import Told, abandon, subject, tell
from rekindle_operator.story.words import Course

__all__ = [
    "Cluster",
    "Course",
    "Fenced",
    "Scene",
    "Sighting",
    "Terms",
    "Told",
    "abandon",
    "settled",
    "sighted",
    "subject",
    "tell",
]
