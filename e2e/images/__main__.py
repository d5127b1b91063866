"""`python -m images`: builds the images, shows their layers and what is in them, and audits that.

Exit codes: 0 done; 1 a build failed, or an advisory holds for something; 2 wrong usage, or
something that is needed is missing.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from images import auditing, image_archives, image_builder, locking
from images.image_builder import IMAGES, ROOT, SBOM
from rekindle.model.errors import InputError
from rekindle_cli import cli_options
from testbed import environment_faults
from testbed.exit_codes import exit_code

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
        "--base-image",
        metavar="NAME@sha256:DIGEST",
        help="to be pulled, in place of Debian's packages",
    )
    build.set_defaults(command=_build)
    layers = commands.add_parser("layers", help="show the layers of an archive, and their sizes")
    layers.add_argument("archive", type=Path)
    layers.set_defaults(command=_layers)
    sbom = commands.add_parser("sbom", help="print what is in an archive, as CycloneDX JSON")
    sbom.add_argument("archive", type=Path)
    sbom.set_defaults(command=_sbom)
    lock = commands.add_parser("lock", help="write anew what images install, with digests (uv)")
    lock.set_defaults(command=lambda _: _lock())
    _add_audit(commands.add_parser("audit", help="compare what images hold with advisories"))
    return parser


def _add_audit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("document", nargs="?", type=Path, help="that `sbom` prints (the locks)")
    parser.add_argument(
        "--advisories", type=Path, metavar="PATH", help="a copy of OSV's database: folder or zip"
    )
    parser.add_argument("--stale", action="store_true", help="whatever the age of that copy")
    parser.set_defaults(command=_audit)


def _build(given: argparse.Namespace) -> None:
    names = given.images or [*IMAGES]
    for name in names:
        cli_options.check_choice("IMAGE", name, tuple(IMAGES))
    if given.base_image:
        image_builder.check_pinned(given.base_image)
    environment_faults.check(image_builder.lacking(names, base_image=given.base_image))
    for name in names:
        built = image_builder.build(name, base_image=given.base_image)
        print(f"{built.reference}\t{built.archive}\t{built.document}", flush=True)


def _layers(given: argparse.Namespace) -> None:
    _check_file(given.archive)
    print(image_archives.shown(given.archive))


def _sbom(given: argparse.Namespace) -> None:
    _check_file(given.archive)
    sys.stdout.write(image_archives.file(given.archive, SBOM).decode())


def _check_file(archive: Path) -> None:
    if not archive.is_file():
        raise InputError(
            where=str(archive), what="is no file", remedy="name one that `build` has printed"
        )


def _lock() -> None:
    with tempfile.NamedTemporaryFile(prefix="rekindle-lock-", suffix=".log", delete=False) as log:
        locking.write(ROOT, log=Path(log.name))
    Path(log.name).unlink()


def _audit(given: argparse.Namespace) -> int:
    """Exit code 0 where no advisory holds, 1 where one does; without a database it cannot know."""
    if given.document is None:
        packages, others = auditing.of_locks(ROOT), 0
    else:
        packages, others = auditing.of_document(given.document)
    print(f"{len(packages)} packages to compare, {others} that no advisories are read for")
    if given.advisories is None:
        raise InputError(
            where="the database of advisories",
            what="is not named, so nothing can be said about these packages",
            remedy=f"{auditing.REMEDY}: --advisories PATH, or make audit ADVISORIES=PATH",
        )
    database = auditing.read(given.advisories)
    if not given.stale:
        database.check_age(datetime.now(UTC))
    found = auditing.audit(packages, database)
    print("\n".join(map(str, found)), end="\n" if found else "")
    newest = f"{database.newest:%Y-%m-%d}"
    print(f"{database.records} advisories, the newest of {newest}: {len(found)} hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
