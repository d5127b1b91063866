"""Images made of files, as archives that containerd imports (the format of `docker save`).

For tests, which need an image where there is neither a registry nor a container engine; an archive
that another tool has made does as well. image_template.py imports them.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rekindle.model.errors import InputError
from testbed import program_runs

# What holds a pod's namespaces; both names are of one image.
PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_SLEEP_SECONDS = str(2**31 - 1)
_INTERPRETER = 3  # PT_INTERP of the ELF format: a program that needs a loader has one
_HEADERS_BYTES_MAX = 4096
_LIST_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Content:
    """What an image holds: programs by their path in it, symbolic links by theirs, folders.

    `command` runs when a container gives none.
    """

    programs: Mapping[str, bytes]
    links: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ("tmp", "etc")
    command: Sequence[str] = ()


def write_archive(path: Path, content: Content, *names: str) -> Path:
    """Write an image with these names; the same content makes the same bytes."""
    layer = _layer(content)
    digest = hashlib.sha256(layer).hexdigest()
    machine = platform.machine()
    settings = {"Env": ["PATH=/bin:/usr/bin"], "Cmd": list(content.command)}
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created_by": "testbed"}],
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    layer_name = f"{digest}/layer.tar"
    manifest = [{"Config": config_name, "RepoTags": list(names), "Layers": [layer_name]}]
    parts = {
        config_name: config,
        layer_name: layer,
        "manifest.json": json.dumps(manifest).encode(),
    }
    with tarfile.open(path, "w") as archive:
        for name, data in parts.items():
            _add_file(archive, name, data, mode=0o644)
    return path


def read_busybox(program: Path) -> Content:
    """An image of busybox alone, which sleeps when it is told nothing.

    Raises `InputError` for a program that needs a loader and libraries.
    """
    data = program.read_bytes()
    if _needs_loader(data):
        raise InputError(
            where=str(program),
            what="is linked dynamically and cannot be an image by itself",
            remedy="install the Debian package busybox-static",
        )
    told = program_runs.run(
        [program, "--list"],
        where=f"{program} --list",
        remedy="install the Debian package busybox-static",
        seconds_max=_LIST_SECONDS_MAX,
    )
    links = {f"bin/{name}": "busybox" for name in told.split() if name != "busybox"}
    return Content(
        programs={"bin/busybox": data}, links=links, command=("/bin/sleep", _SLEEP_SECONDS)
    )


def _layer(content: Content) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        paths = (*content.programs, *content.links)
        parents = {str(parent) for path in paths for parent in Path(path).parents}
        for folder in sorted({*parents, *content.folders} - {"."}):
            entry = tarfile.TarInfo(folder)
            entry.type = tarfile.DIRTYPE
            entry.mode = 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        for path, data in sorted(content.programs.items()):
            _add_file(archive, path, data, mode=0o755)
        for path, target in sorted(content.links.items()):
            entry = tarfile.TarInfo(path)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return buffer.getvalue()


def _add_file(archive: tarfile.TarFile, name: str, data: bytes, *, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def _needs_loader(data: bytes) -> bool:
    """Whether a 64-bit little-endian ELF program names an interpreter."""
    offset = int.from_bytes(data[32:40], "little")
    size, count = (int.from_bytes(data[at : at + 2], "little") for at in (54, 56))
    starts = range(offset, min(offset + size * count, _HEADERS_BYTES_MAX), max(size, 1))
    return any(int.from_bytes(data[at : at + 4], "little") == _INTERPRETER for at in starts)
