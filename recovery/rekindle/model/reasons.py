"""The one list of reasons: every decision carries one of these words.

The same word goes to instruction, event, condition, metric and log, so a person who reads one can
search for it in the others. Decides nothing; the coordinator and its shells use it.
"""

from enum import StrEnum
from typing import Self


class Explained(StrEnum):
    """Words with their meanings: members are written as `WORD = word, meaning`."""

    meaning: str

    def __new__(cls, word: str, meaning: str) -> Self:
        explained = str.__new__(cls, word)
        explained._value_ = word
        explained.meaning = meaning
        return explained

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        """A word of a newer release, in a record that it has written: kept as it is."""
        if not isinstance(value, str):
            return None
        found = str.__new__(cls, value)
        found._name_ = found._value_ = value
        found.meaning = "a word of a newer release"
        return found


class Reason(Explained):
    """A kebab-case word; `meaning` says it in a line."""

    STARTED = "started", "the application starts fresh and all expected nodes are up"
    RESUMED = "resumed", "a new driver found earlier work in the checkpoint store"
    SUSPECTED_FAILURE = "suspected-failure", "a node is silent, but nobody has confirmed its loss"
    SUSPICION_CLEARED = "suspicion-cleared", "a suspected node has been heard of again"
    INDEPENDENT_FAILURE = "independent-failure", "fewer nodes are lost than make it correlated"
    CORRELATED_FAILURE = "correlated-failure", "several nodes are lost within the window"
    COMPLETE_FAILURE = "complete-failure", "no node of the application is left"
    LOSS_ANNOUNCED = (
        "loss-announced",
        "a node is announced to go: what matters most on it moves before, in plan order",
    )
    NOTICE_WITHDRAWN = "notice-withdrawn", "a node that was announced to go stays"
    NODE_BACK = "node-back", "a node has come, come back, or changed its capacity"
    QUERY_CAUGHT_UP = "query-caught-up", "a query needs no more CPU than in the steady state"
    STATISTICS_CHANGED = "statistics-changed", "costs were measured anew while a query waits"
    PLAN_UNDONE = "plan-undone", "the driver could not place all that a plan names"
    UNEVEN_LOAD = "uneven-load", "a node carries far more than another, and partitions move"
    SURVIVAL = "survival", "partitions move so that a lost failure domain stops less priority"
    SLOW_NODE = "slow-node", "a node is so much slower than others that it holds them up"
    UNREACHABLE_BY_PEERS = (
        "unreachable-by-peers",
        "executors cannot read from each other, and the one that most cannot read is dropped",
    )
    POLICY_CHANGED = "policy-changed", "somebody has changed the policy"
    PAUSED = "paused", "somebody has paused the application: no epochs, no plans"
    UNPAUSED = "unpaused", "somebody has ended the pause"
    REPEATED = "repeated", "the driver has taken an order and is still not as it says"
    WAITING_FOR_NODES = "waiting-for-nodes", "the plan is made when enough nodes are up"
    NO_CAPACITY = "no-capacity", "no query that waits fits on what is free"
    ALL_NODES_LOST = "all-nodes-lost", "every node looks lost: it may be us, so nothing is done"
    STORE_UNREACHABLE = "store-unreachable", "the coordination store does not answer"
    STORE_REACHABLE = "store-reachable", "the coordination store answers again"
    NO_COORDINATOR = "no-coordinator", "no coordinator takes part in the election"
    DRIVER_SILENT = "driver-silent", "the driver has no heartbeat, and may be there all the same"
    DRIVER_ALONE = "driver-alone", "the driver cannot ask a coordinator and plans by itself"
    PLAN_AWAITED = "plan-awaited", "the driver has not taken the newest plan yet"
    CHECKPOINT_AWAITED = "checkpoint-awaited", "the incident ends with the next global checkpoint"
    QUERY_STOPPED = "query-stopped", "a function of it raises: it waits for a mended one"
    FUNCTION_SUSPECTED = (
        "function-suspected",
        "a process died while it ran a function: the partition runs apart from all others",
    )
    SOURCE_AWAY = "source-away", "a source cannot be reached: its queries wait, nothing is planned"
    FUNCTION_PASSED = "function-passed", "a suspected function has passed the epoch in question"
    BAD_RECORD = (
        "bad-record",
        "nothing can be decided about the application, say for a record of it",
    )
    DRIVER_LOST = "driver-lost", "the driver's session has ended"
    RECOVERED = "recovered", "all queries are caught up and a global checkpoint has completed since"
