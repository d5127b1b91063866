"""Faults of our own, put in on purpose to see that the invariants find them."""

from enum import StrEnum


class SimulationSabotage(StrEnum):
    """What is broken.

    double-plan      a coordinator writes without holding its transaction to the version it read
    stale-directive  a driver takes any directive, whatever its generation and plan epoch
    forgotten-ack    a driver never says which plan it has carried out
    ignored-notice   a coordinator does not know which nodes are announced to go
    generation       the checkpoint store takes commits of drivers that were superseded
    """

    DOUBLE_PLAN = "double-plan"
    STALE_DIRECTIVE = "stale-directive"
    FORGOTTEN_ACK = "forgotten-ack"
    IGNORED_NOTICE = "ignored-notice"
    GENERATION = "generation"
