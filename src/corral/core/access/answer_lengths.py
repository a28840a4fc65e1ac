"""How long the answers are that a key usually gets from one model."""

from collections import OrderedDict

from corral.core.access.token_estimate import OUTPUT_TOKENS

KEYS_MAX = 1024
_AVERAGE_OVER = 8


class AnswerLengths:
    """Moving averages, of the keys that were seen last."""

    __slots__ = ("_averages",)

    def __init__(self) -> None:
        self._averages: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """With the number of answers, up to the one from which the oldest count less."""

    def usual(self, key_id: str) -> float:
        found = self._averages.get(key_id)
        return found[0] if found is not None else OUTPUT_TOKENS

    def learn(self, key_id: str, tokens: int) -> None:
        average, count = self._averages.pop(key_id, (0.0, 0))
        count = min(_AVERAGE_OVER, count + 1)
        self._averages[key_id] = average + (tokens - average) / count, count
        if len(self._averages) > KEYS_MAX:
            self._averages.popitem(last=False)
