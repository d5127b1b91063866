"""`python -m operator_benchmark`: runs one benchmark on the test control plane.

Exit codes: 0 all bars are met; 1 one is not, or the run failed; 2 wrong usage; 130 interrupted.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from operator_benchmark.cluster_layout import ClusterSize
from rekindle_cli import cli_options
from testbed.exit_codes import exit_code

EXAMPLE = "Example: python -m operator_benchmark operator --nodes 1000 --pods 20000 --policies 200"


def main(arguments: Sequence[str]) -> int:
    """Runs one benchmark; returns the exit code."""
    given = _parser().parse_args(arguments)
    command = f"python -m operator_benchmark {' '.join(arguments)}"
    return exit_code(lambda: 0 if given.measure(given, command) else 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m operator_benchmark",
        description="Measure the operator on a real control plane.",
        epilog=EXAMPLE,
    )
    kinds = parser.add_subparsers(required=True, metavar="BENCHMARK")
    operator = kinds.add_parser("operator", help="cost at rest, plans after failures")
    operator.add_argument("--nodes", type=int, default=5_000, metavar="N", help="nodes (5000)")
    operator.add_argument("--pods", type=int, default=100_000, metavar="P", help="pods (100000)")
    operator.add_argument(
        "--policies", type=int, default=1_000, metavar="A", help="applications (1000)"
    )
    operator.add_argument(
        "--lease-seconds", type=int, default=10, metavar="S", help="leases' renewals (10)"
    )
    operator.add_argument(
        "--rest-seconds", type=float, default=60, metavar="S", help="how long it rests (60)"
    )
    operator.add_argument(
        "--plain", action="store_true", help="a store without TLS and rights, to compare"
    )
    operator.add_argument("--report", type=Path, help="a new directory for figures and logs")
    operator.set_defaults(measure=_operator)
    planning = kinds.add_parser("applications", help="the first plan for many whole applications")
    planning.add_argument("--nodes", type=int, default=5_000, metavar="N", help="nodes (5000)")
    planning.add_argument(
        "--applications", type=int, default=2_000, metavar="A", help="applications (2000)"
    )
    planning.add_argument(
        "--executors", type=int, default=20, metavar="E", help="of each application (20)"
    )
    planning.add_argument("--report", type=Path, help="a new directory for the figures")
    planning.set_defaults(measure=_applications)
    return parser


def _operator(given: argparse.Namespace, command: str) -> bool:
    size = ClusterSize(given.nodes, given.pods, given.policies).checked()
    cli_options.check_range("--lease-seconds", given.lease_seconds, 1, 120)
    cli_options.check_range("--rest-seconds", given.rest_seconds, 1, 3_600)
    from operator_benchmark import operator_at_scale as benchmark

    settings = benchmark.ScaleSettings(size, given.lease_seconds, given.plain, given.rest_seconds)
    if given.report is not None:
        return benchmark.measure(settings, cli_options.new_directory(given.report), command)
    with tempfile.TemporaryDirectory(prefix="bench-operator-") as directory:
        return benchmark.measure(settings, Path(directory), command)


def _applications(given: argparse.Namespace, command: str) -> bool:
    cli_options.check_range("--nodes", given.nodes, 1, 50_000)
    cli_options.check_range("--applications", given.applications, 1, 50_000)
    cli_options.check_range("--executors", given.executors, 1, 1_000)
    from operator_benchmark import application_planning as benchmark

    size = benchmark.PlanningSize(given.applications, given.executors, given.nodes)
    if given.report is not None:
        return benchmark.measure(size, cli_options.new_directory(given.report), command)
    with tempfile.TemporaryDirectory(prefix="bench-applications-") as directory:
        return benchmark.measure(size, Path(directory), command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
