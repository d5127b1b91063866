"""Commands that need a cluster of local processes; pyproject.toml registers them.

    coordinator_command  coordinates the applications of a store
    demo_command         the demo, its report and its summary

Other packages register theirs in the same way.
"""

from rekindle_cli.command_line import Command, HelpPanel

__all__ = ["COORDINATOR", "DEMO"]

COORDINATOR = Command(
    "coordinator",
    "Coordinate the applications of a store; several coordinators elect the one that does.",
    "rekindle_local.local_commands.coordinator_command",
    HelpPanel.SERVE,
)
DEMO = Command(
    "demo",
    "Kill nodes under a running pipeline and report how its queries come back.",
    "rekindle_local.local_commands.demo_command",
    HelpPanel.WRITE,
)
