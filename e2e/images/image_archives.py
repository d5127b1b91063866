"""What is in an archive of an image (docker-archive): its layers, with their sizes."""

import json
import posixpath
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.model.errors import InputError

SHOWN_MAX = 90
# What comes of content that has another form.
_OTHERWISE_MADE = (AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer: its bytes, not compressed, and the line of the Dockerfile that made it."""

    size_bytes: int
    made_by: str


def layers(archive: Path) -> list[Layer]:
    """The layers of the only image in an archive, the lowest first.

    Raises `InputError` for a file that is no such archive.
    """
    try:
        with tarfile.open(archive) as opened:
            (manifest,) = _read(opened, "manifest.json")
            history = _read(opened, manifest["Config"]).get("history") or []
            sizes = [_member(opened, name).size for name in manifest["Layers"]]
        made = [item.get("created_by", "") for item in history if not item.get("empty_layer")]
    except (tarfile.TarError, OSError, EOFError, *_OTHERWISE_MADE) as error:
        raise _no_archive(archive) from error
    made += [""] * (len(sizes) - len(made))
    return [Layer(size, " ".join(text.split())) for size, text in zip(sizes, made, strict=True)]


def file(archive: Path, path: str) -> bytes:
    """The content of a file in the only image of an archive, from the topmost layer that has it.

    Raises `InputError` for a file that is no such archive, and where no layer has it.
    """
    try:
        with tarfile.open(archive) as opened:
            (manifest,) = _read(opened, "manifest.json")
            for name in reversed(manifest["Layers"]):
                with tarfile.open(fileobj=opened.extractfile(_member(opened, name))) as layer:
                    found = {member.name.removeprefix("./"): member for member in layer}.get(path)
                    content = layer.extractfile(found) if found else None
                    if content is not None:
                        return content.read()
    except (tarfile.TarError, OSError, EOFError, *_OTHERWISE_MADE) as error:
        raise _no_archive(archive) from error
    raise InputError(
        where=str(archive),
        what=f"has no /{path}",
        remedy="build the image again with `make images`",
    )


def shown(archive: Path) -> str:
    """A table for a person, in megabytes (10^6 bytes)."""
    found = layers(archive)
    lines = [f"{layer.size_bytes / 1e6:8.1f}  {layer.made_by[:SHOWN_MAX]}" for layer in found]
    return "\n".join((*lines, f"{sum(layer.size_bytes for layer in found) / 1e6:8.1f}  MB"))


def _read(opened: tarfile.TarFile, name: str) -> Any:
    file = opened.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file")
    return json.loads(file.read())


def _no_archive(archive: Path) -> InputError:
    return InputError(
        where=str(archive),
        what="is no archive of one image, or cannot be read",
        remedy="name one that `build` has printed",
    )


def _member(opened: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    member = opened.getmember(name)
    if member.issym():  # a layer that is there already, for another image
        member = opened.getmember(
            posixpath.normpath(f"{posixpath.dirname(name)}/{member.linkname}")
        )
    return member
