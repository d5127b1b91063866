"""What is missing or wrong: looked for before anything is made, and said all at once.

Each part of e2e that needs something has a function `lacking`, which makes nothing and gives an
`InputError` for each thing: test_programs.py, foreign_crds.py and cluster_prerequisites.py here,
and base_images.py and image_builder.py of `images`. A caller that starts several of these hands
what they give to `check`.
"""

from collections.abc import Callable, Iterable

from rekindle.model.errors import InputError


def check(faults: Iterable[InputError]) -> None:
    """Raises one `InputError` that says all of the faults, each in a line with its remedy."""
    found = {str(fault): fault for fault in faults}
    if not found:
        return
    if len(found) == 1:
        raise next(iter(found.values()))
    lines = "".join(f"\n  {fault}" for fault in found)
    raise InputError(
        where="prerequisites",
        what=f"{len(found)} are missing or wrong",
        remedy=f"see to each:{lines}",
    )


def raised(look: Callable[[], object]) -> list[InputError]:
    """The fault with which a look at something ends, if it does."""
    try:
        look()
    except InputError as fault:
        return [fault]
    return []
