"""Our scheduling gate taken off pods that wait for their turn, without a plan.

The operator lifts gates by its plan (`applications`). Here they are lifted for good.

    waiting_pods   pods with our gate, and the gate lifted; `kubectl rekindle release` uses it too
    gate_release   the command `rekindle-release-gates`: no pod waits any more
"""
