"""A store's files in memory, whose driver is killed at one of its writes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from rekindle_store.transfers import Moved, unwatched


class Crashed(BaseException):
    """The driver was killed."""


class MemoryFiles:
    """Files that are there or not; before or after its `fatal`th change the driver is killed."""

    place = "memory"

    def __init__(self, fatal: int | None = None, *, after: bool = False) -> None:
        self.content: dict[str, bytes] = {}
        self.fatal, self.after = fatal, after
        self.watch: Callable[[], None] = lambda: None
        self.awaited = ""

    def _change(self, action: Callable[[], object]) -> None:
        self.fatal = None if self.fatal is None else self.fatal - 1
        if self.fatal == 0 and not self.after:
            raise Crashed
        action()
        self.watch()
        if self.fatal == 0:
            raise Crashed

    def make_folder(self, name: str) -> None: ...

    def create(self, name: str, data: bytes) -> None:
        if self.content.get(name, data) != data:
            raise FileExistsError(17, "is there already", name)
        self._change(lambda: self.content.update({name: data}))

    def put(self, files: Mapping[str, bytes], moved: Moved = unwatched) -> None:
        self._change(lambda: self.content.update(files))
        moved(sum(map(len, files.values())))

    def read(self, name: str, moved: Moved = unwatched) -> bytes:
        if name not in self.content:
            raise FileNotFoundError(2, "is not there", name)
        moved(len(self.content[name]))
        return self.content[name]

    def size(self, name: str) -> int:
        return len(self.read(name))

    def names(self, folder: str) -> list[str]:
        return list(self.stream_names(folder))

    def stream_names(self, folder: str) -> Iterator[str]:
        top = f"{folder}/"
        return (name.removeprefix(top) for name in list(self.content) if name.startswith(top))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._change(partial(self.content.pop, name, None))

    def remove_leftovers(self, seconds: float) -> None: ...
