"""Latency predictors: from a few measured points to the latency of any request.

LENS is what cases are judged by. A rival is one file here that holds one `PREDICTOR` (protocol.Predictor), or an entry
point of the group `pytest_npubench.predictors`; it is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pytest_npubench.core.registry import Registry
from pytest_npubench.errors import NpubenchError

if TYPE_CHECKING:
    from pytest_npubench.predictors.protocol import Predictor

LENS = "lens"
ALL = "all"
HELPERS = frozenset(
    {
        "band",
        "prediction",
        "profile",
        "protocol",
        "ragged",
        "request_times",
        "transfer",
        "transitions",
        "two_point",
        "work",
    }
)
"""The files of this folder that hold no predictor."""


def _is_predictor(thing: Any, name: str) -> bool:
    from pytest_npubench.predictors.protocol import Predictor

    return isinstance(thing, Predictor) and thing.name == name


PREDICTORS: Registry[Predictor] = Registry(
    what="predictor",
    group="pytest_npubench.predictors",
    package=__name__,
    attribute="PREDICTOR",
    fits=_is_predictor,
    want="Predictor of that name",
    helpers=HELPERS,
    first=(LENS,),
    reserved=(ALL,),
)
names, taken = PREDICTORS.names, PREDICTORS.taken


def predictor(name: str) -> Predictor:
    """Raises RegistryError on an unknown name or a file that cannot be imported, BrokenEntryError for an entry point
    that cannot be had."""
    if name not in names():
        raise PREDICTORS.unknown(name, f", or {ALL}")
    return PREDICTORS.get(name)


def available(names: Sequence[str]) -> list[Predictor]:
    """Returns those of these predictors that can be had; of the others, whoever asks for their predictions says why."""
    chosen = []
    for name in names:
        with suppress(NpubenchError):
            chosen.append(predictor(name))
    return chosen


def rivals(asked: Sequence[str]) -> tuple[str, ...]:
    """Returns the predictors beside LENS of a list of names or of `all`. Raises RegistryError for a name that cannot be
    had; `all` has those that cannot, who then say why wherever they should have predicted."""
    chosen = names() if ALL in asked else dict.fromkeys(predictor(name).name for name in asked)
    return tuple(name for name in chosen if name != LENS)
