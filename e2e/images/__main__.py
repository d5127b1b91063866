"""`python -m images`: builds the images, and shows their layers.

Exit codes: 0 done; 1 a build failed; 2 wrong usage, or something to build with is missing.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from images import archives, building
from images.building import IMAGES
from rekindle.errors import InputError
from rekindle_cli import options
from testbed import faults
from testbed.exits import exit_code

__all__ = ["main"]

EXAMPLE = "Example: python -m images build spark"


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns the exit code."""
    given = _parser().parse_args(arguments)
    return exit_code(lambda: given.command(given))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m images",
        description="Build the images of drivers, executors and operator, without a registry.",
        epilog=EXAMPLE,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="build, and print name and archive of each image")
    build.add_argument("images", nargs="*", metavar="IMAGE", help=f"of {', '.join(IMAGES)} (all)")
    build.add_argument(
        "--base-image", metavar="IMAGE", help="to be pulled, in place of Debian's packages"
    )
    build.set_defaults(command=_build)
    layers = commands.add_parser("layers", help="show the layers of an archive, and their sizes")
    layers.add_argument("archive", type=Path)
    layers.set_defaults(command=_layers)
    return parser


def _build(given: argparse.Namespace) -> None:
    names = given.images or [*IMAGES]
    for name in names:
        options.check_choice("IMAGE", name, tuple(IMAGES))
    faults.check(building.lacking(names, base_image=given.base_image))
    for name in names:
        built = building.build(name, base_image=given.base_image)
        print(f"{built.reference}\t{built.archive}", flush=True)


def _layers(given: argparse.Namespace) -> None:
    if not given.archive.is_file():
        raise InputError(
            where=str(given.archive), what="is no file", remedy="name one that `build` has printed"
        )
    print(archives.shown(given.archive))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
