"""Days and months of budgets, in UTC."""

from datetime import date, timedelta

DAY_MS = 86_400_000
_FIRST = date(1970, 1, 1)


def month_days(day: int) -> tuple[int, int]:
    """The first day of the month that `day` is in, and that of the next month. Days are counted since 1970."""
    first = (_FIRST + timedelta(days=day)).replace(day=1)
    following = (first + timedelta(days=31)).replace(day=1)
    return (first - _FIRST).days, (following - _FIRST).days


def ends_in_ms(now_ms: int) -> tuple[int, int]:
    """Until the day ends, and until the month ends."""
    day = now_ms // DAY_MS
    return (day + 1) * DAY_MS - now_ms, month_days(day)[1] * DAY_MS - now_ms
