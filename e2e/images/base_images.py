"""A base image of Debian's packages: a root folder as a tar, made by mmdebstrap, kept by content.

Packages come from where this machine's apt has them; nothing of how it gets there stays, for that
may hold passwords. What is in no image of use (manuals, documentation, other languages) is left out
while dpkg unpacks.
"""

import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from images import image_programs
from rekindle.model.errors import InputError
from testbed import environment_faults
from testbed.program_runs import run

SUITE = "bookworm"
SOURCES = (
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d/*.sources",
    "/etc/apt/sources.list.d/*.list",
)
LEFT_OUT = (
    "/usr/share/doc/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/share/man/*",
    # for compilers to older Java alone
    "/usr/lib/jvm/*/lib/ct.sym",
)
# mmdebstrap's own: where the suite has a merged /usr, make it so before anything is unpacked.
MERGED = "/usr/share/mmdebstrap/hooks/maybe-merged-usr"
KEPT = ("/usr/share/doc/*/copyright",)
# What mmdebstrap copies from this machine and leaves there. No apt is in a root that would want it.
FORGET = (
    'rm -f "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/apt/sources.list '
    '"$1"/etc/apt/sources.list.d/* && : > "$1"/etc/resolv.conf && : > "$1"/etc/hostname'
)
ASK_SECONDS_MAX = 60.0
_OTHERWISE = "give `images build` a --base-image that has Java 17, Python 3.11 and tini"
_PYTHON = re.compile(r"(?:\./)?usr/bin/python3\.(\d+)")


@dataclass(frozen=True, slots=True)
class Base:
    """A base image: its packages beside the essential ones, which have bash and libc."""

    name: str
    packages: tuple[str, ...]

    def description(self) -> str:
        """All that decides what is in it, but for the versions of packages."""
        return "\n".join((SUITE, *self.packages, *LEFT_OUT, *KEPT, FORGET))


# The root is merged from the start; what would merge it brings all of Perl with it.
_PYTHON_PACKAGES = ("ca-certificates", "python3", "python3-venv", "usr-is-merged")
OPERATOR = Base("operator", (*_PYTHON_PACKAGES, "libstdc++6"))
SPARK = Base("spark", (*_PYTHON_PACKAGES, "openjdk-17-jre-headless", "tini"))


def make(base: Base, tar: Path, *, log: Path) -> None:
    """Make the root folder of a base as a new file; beside it lie apt's settings until then.

    Raises `InputError` where mmdebstrap or apt's sources are missing, `RunError` when it fails.
    """
    program = _program()
    excluded = [f'--dpkgopt=path-exclude="{pattern}"' for pattern in LEFT_OUT]
    included = [f'--dpkgopt=path-include="{pattern}"' for pattern in KEPT]
    settings = tar.with_suffix(".apt")
    command = [
        program,
        "--mode=root",
        "--variant=essential",
        f"--hook-directory={MERGED}",
        f"--include={','.join(base.packages)}",
        *excluded,
        *included,
        f"--aptopt={settings}",
        f"--customize-hook={FORGET}",
        SUITE,
        str(tar),
        *_sources(),
    ]
    try:
        # In a file: every user of this machine sees the arguments of a program.
        settings.touch(mode=0o600)
        settings.write_text("".join(_apt_settings()), encoding="utf-8")
        image_programs.run(command, log=log)
    finally:
        settings.unlink(missing_ok=True)


def lacking() -> list[InputError]:
    """Why no base can be made here; nothing where one can."""
    found = [*environment_faults.raised(_program), *environment_faults.raised(_sources)]
    if os.geteuid() != 0:
        found.append(
            InputError(
                where="a base of Debian's packages",
                what="needs root to be made",
                remedy=f"run this as root, or {_OTHERWISE}",
            )
        )
    return found


def python_version(tar: Path) -> tuple[int, int]:
    """The version of Python in a root folder."""
    with tarfile.open(tar) as opened:
        for member in opened:
            found = _PYTHON.fullmatch(member.name)
            if found:
                return 3, int(found[1])
    raise AssertionError(f"{tar} has no Python, and its packages name it")


def _program() -> str:
    return image_programs.where_is("mmdebstrap", "mmdebstrap")


def _sources() -> list[str]:
    """The files of apt that tell where this suite is."""
    found = [
        str(path)
        for pattern in SOURCES
        for path in sorted(Path("/").glob(pattern.lstrip("/")))
        if SUITE in path.read_text(encoding="utf-8", errors="replace")
    ]
    if not found:
        raise InputError(
            where="/etc/apt/sources.list.d",
            what=f"names no source of Debian {SUITE}",
            remedy=f"add one, or {_OTHERWISE}",
        )
    return found


def _apt_settings() -> Iterator[str]:
    """How this machine's apt reaches its sources, a line each: proxies, what it puts up with."""
    told = run(
        ["apt-config", "dump", "--format", "%f %v%n", "Acquire"],
        where="apt-config dump",
        remedy="see whether apt works on this machine",
        seconds_max=ASK_SECONDS_MAX,
    )
    for line in told.splitlines():
        name, _, value = line.partition(" ")
        if value and not name.endswith("::"):
            yield f'{name} "{value}";\n'
