"""Which Python an environment is for: Corral's own, else another one of this machine that the packages support."""

from collections.abc import Sequence

from packaging.requirements import Requirement

from corral.artifacts.cancel import CancelToken
from corral.artifacts.content.pieces import ResolvedArtifact
from corral.artifacts.errors import NoPlatformFits
from corral.artifacts.pypi.index import PypiIndex
from corral.artifacts.pypi.interpreters import Interpreter, find_interpreters, imagined_interpreters


def resolve_environment(index: PypiIndex, requirements: tuple[str, ...], cancel: CancelToken) -> ResolvedArtifact:
    """Only reads the index. Raises with the versions of Python that would do if none on this machine does."""
    try:
        return index.resolve_environment(requirements, cancel)
    except NoPlatformFits as error:
        others = find_interpreters(index.settings.pythons)
        for other in others:
            try:
                return index.for_python(other).resolve_environment(requirements, cancel)
            except NoPlatformFits:
                continue
        advice = _advise(index, [Requirement(text) for text in requirements], others, cancel)
        if not advice:
            raise
        raise NoPlatformFits(f"{error} {advice}") from error


def _advise(
    index: PypiIndex, requirements: Sequence[Requirement], others: Sequence[Interpreter], cancel: CancelToken
) -> str:
    """Empty if another Python would not help."""
    if index.supports(requirements, index.python, cancel):
        return ""
    fitting = [one.minor for one in imagined_interpreters() if index.supports(requirements, one, cancel)]
    tried = {index.python.minor, *(other.minor for other in others)}
    names = [f"{major}.{minor}" for major, minor in fitting if (major, minor) not in tried]
    if not names:
        return ""
    have = ", ".join([f"{index.python.version} (Corral's own)", *(other.version for other in others)])
    return (
        f"Python {' or '.join(names)} would do; this machine has {have}. Install python{names[-1]}, or add the"
        " directory of one to CORRAL_PYTHONS."
    )
