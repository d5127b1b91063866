"""Stories for the tests of detection: what happens to a cluster, and what is found when."""

from collections.abc import Callable
from dataclasses import dataclass

from detection_world import Change, World, cluster, follow, told


@dataclass(frozen=True)
class Story:
    """What happens to a cluster (moment, change), and what is found (moment, verdict: reason).

    Six machines unless said otherwise; n1 renews at 0, 10, 20, ..., the others in between; team `a`
    has executors on n1, n2 and n3.
    """

    name: str
    script: list[tuple[float, Change]]
    found: list[str]
    count: int = 6
    until: float = 120.0
    before: Change | None = None


def lose(*names: str) -> Change:
    return lambda world: world.lose(*names)


def restore(*names: str) -> Change:
    return lambda world: world.restore(*names)


def delete(*names: str) -> Change:
    return lambda world: world.delete(*names)


def change(name: str, **fields: object) -> Change:
    return lambda world: world.change(name, **fields)


def both(*changes: Change) -> Change:
    return lambda world: [item(world) for item in changes]


def change_all(count: int, **fields: object) -> Change:
    return both(*(change(f"n{number + 1}", **fields) for number in range(count)))


def assign(of: Callable[[World], object], fields: dict[str, object]) -> Change:
    def act(world: World) -> None:
        for name, value in fields.items():
            assert hasattr(of(world), name)
            setattr(of(world), name, value)

    return act


def mend(**fields: object) -> Change:
    """Changes of the world itself."""
    return assign(lambda world: world, fields)


def machine(name: str, **fields: object) -> Change:
    return assign(lambda world: world.machines[name], fields)


def driver(**fields: object) -> Change:
    """Changes of team `a`."""
    return assign(lambda world: world.teams["a"], fields)


def check(story: Story) -> None:
    """Tell the story with a look every 5 s, and hold against it what is found."""
    world = cluster(story.count)
    if story.before is not None:
        story.before(world)
    assert told(follow(world, story.script, story.until)) == story.found


CLEARED = "suspicion-cleared"
ONE_LOST = ["30 suspected n1: suspected-failure", "30 confirmed n1 to a: driver-hears-nothing"]
ONLY_SUSPECTED = ONE_LOST[:1]
# Of four nodes that fall silent at 12.
ALL_SUSPECTED = [
    "25 suspected n2: suspected-failure",
    "25 suspected n3: suspected-failure",
    "30 suspected n1: suspected-failure",
    "30 suspected n4: suspected-failure",
    "30 held: all-nodes-lost",
]
