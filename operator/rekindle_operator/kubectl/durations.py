"""Durations and moments, as people write and read them.

Pure: the moment now is an argument. Commands and the modules that make sentences call it.
"""

import re
from datetime import UTC, datetime, timedelta

from rekindle.model.errors import InputError

DURATION = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9})s)?")
TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
SECONDS_MAX = 366 * 86_400


def duration(text: str, where: str) -> timedelta:
    """A duration such as 90s, 30m, 1h30m or 2d; InputError for none, and beyond a year."""
    found = DURATION.fullmatch(text.strip())
    parts = [int(part or 0) for part in found.groups()] if found and text.strip() else []
    seconds = sum(n * unit for n, unit in zip(parts, (86_400, 3_600, 60, 1), strict=False))
    if not 0 < seconds <= SECONDS_MAX:
        raise InputError(
            where=where,
            what=f"is {text!r:.60}",
            remedy="write a duration up to a year, such as 90s, 30m, 1h30m or 2d",
        )
    return timedelta(seconds=seconds)


def until(text: str, now: datetime, where: str) -> datetime:
    """A moment to come: of RFC 3339, or a time of day, the next such one. A moment without a zone
    is of `now`'s. InputError for none, and for one that is over."""
    moment = _moment(text.strip(), now)
    if moment is None:
        raise InputError(
            where=where,
            what=f"is {text!r:.60}",
            remedy="write a moment such as 2030-01-01T12:00:00Z, or a time of day such as 18:30",
        )
    if not now < moment <= now + timedelta(seconds=SECONDS_MAX):
        what = "is over" if moment <= now else "is more than a year away"
        raise InputError(where=where, what=f"{text.strip():.60} {what}", remedy="give another one")
    return moment


def stamp(moment: datetime) -> str:
    """As the API has it: UTC, whole seconds."""
    whole = moment.astimezone(UTC).replace(microsecond=0)
    return whole.isoformat().replace("+00:00", "Z")


def clock(moment: datetime, now: datetime) -> str:
    """The time of day in `now`'s zone, with the date unless it is today's."""
    local = moment.astimezone(now.tzinfo)
    same = local.date() == now.date()
    return local.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M:%S")


def span(seconds: float) -> str:
    """A length of time in words: 4.2 s, 1 min 30 s, 2 h 5 min, 3 d 4 h."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    parts = [(whole // 86_400, "d"), (whole % 86_400 // 3_600, "h")]
    parts += [(whole % 3_600 // 60, "min"), (whole % 60, "s")]
    shown = [f"{number} {unit}" for number, unit in parts]
    first = next(index for index, (number, _) in enumerate(parts) if number)
    return " ".join(
        text
        for (number, _), text in zip(parts[first : first + 2], shown[first:], strict=False)
        if number
    )


def _moment(text: str, now: datetime) -> datetime | None:
    clock_time = TIME_OF_DAY.fullmatch(text)
    if clock_time is not None:
        hour, minute = int(clock_time[1]), int(clock_time[2])
        today = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
        return today if today > now else today + timedelta(days=1)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=now.tzinfo)
