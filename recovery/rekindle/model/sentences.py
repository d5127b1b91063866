"""Parts of sentences for people: numbers of things, and shares of a core.

Whoever writes a sentence calls them. Data has the exact values.
"""


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number of things: 1 node, 2 nodes; with `plural` for other words: 2 queries wait."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def percent(value: float) -> str:
    """A share of a core: 0.4 %, 12 %, 140 %."""
    return f"{round(value, 1):g} %" if value < 9.95 else f"{value:.0f} %"
