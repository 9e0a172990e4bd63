"""Latency predictors: from a few measured points to the latency of any request.

LENS is what cases are judged by. A rival is one file here that holds one `PREDICTOR` (protocol.Predictor), or an entry
point of the group `pytest_npubench.predictors` in another distribution; it is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from pytest_npubench.core.entry_points import Entry, clashes, entries
from pytest_npubench.errors import RegistryError, did_you_mean

if TYPE_CHECKING:
    from pytest_npubench.predictors.protocol import Predictor

WHAT, GROUP = "predictor", "pytest_npubench.predictors"
LENS = "lens"
ALL = "all"


def names() -> tuple[str, ...]:
    """LENS, then our rivals, then those of other distributions. Raises RegistryError for a file of ours that cannot be
    imported."""
    own = (name for name in _files() if name != LENS and _own(name) is not None)
    return (LENS, *own, *_offered())


def taken() -> tuple[str, ...]:
    """A sentence for each name of ours that another distribution registers as well."""
    return clashes(WHAT, GROUP, (*_files(), ALL))


def predictor(name: str) -> Predictor:
    """Raises RegistryError on an unknown name or a file that cannot be imported, BrokenEntryError for one of another
    distribution that cannot be had."""
    if name in _offered():
        return _loaded(_offered()[name])
    found = _own(name) if name in _files() else None
    if found is None:
        raise RegistryError(
            f"no predictor {name!r}; known: {', '.join(names())}, or {ALL}{did_you_mean(name, names())}"
        )
    return found


def rivals(asked: Sequence[str]) -> tuple[str, ...]:
    """The predictors beside LENS of a list of names or of `all`. Raises RegistryError for a name that cannot be had;
    `all` has those that cannot, who then say why wherever they should have predicted."""
    chosen = names() if ALL in asked else dict.fromkeys(predictor(name).name for name in asked)
    return tuple(name for name in chosen if name != LENS)


def _own(name: str) -> Predictor | None:
    """The predictor of a file of this folder; None where the file holds something else."""
    from pytest_npubench.predictors.protocol import Predictor

    try:
        module = import_module(f"{__name__}.{name}")
    except Exception as error:
        raise RegistryError(f"predictors/{name}.py cannot be imported: {type(error).__name__}: {error}") from error
    found = getattr(module, "PREDICTOR", None)
    if found is not None and (not isinstance(found, Predictor) or found.name != name):
        raise RegistryError(f"predictors/{name}.py: PREDICTOR is no Predictor of name {name!r}")
    return found


def _loaded(entry: Entry) -> Predictor:
    from pytest_npubench.predictors.protocol import Predictor

    found: Predictor = entry.load(
        lambda thing: isinstance(thing, Predictor) and thing.name == entry.name, "Predictor of that name"
    )
    return found


def _offered() -> Mapping[str, Entry]:
    return entries(WHAT, GROUP, (*_files(), ALL))


@lru_cache(maxsize=1)
def _files() -> tuple[str, ...]:
    return tuple(info.name for info in iter_modules(__path__))
