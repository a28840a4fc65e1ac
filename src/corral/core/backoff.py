"""How long to wait before trying again. Chance is an argument: what failed together does not come back together."""


def restart_delay_s(failures: int, *, draw: float, base_s: float = 0.5, cap_s: float = 30.0) -> float:
    """Between half and the whole of an exponential step; never at once, so that a crash loop stays quiet."""
    step_s = min(cap_s, base_s * 2.0 ** min(max(failures, 1) - 1, 16))
    return step_s * (0.5 + 0.5 * draw)
