"""Short names of cases: KIND/TAIL, where TAIL is an end of the case's id. They are unique among the cases at hand, and
commands that show one case take them as they take SUITE/KIND/ID.

Worked example: of buckets/profile/cpu-tiny-b1-bucket16 and buckets/profile/cpu-tiny-b4-bucket16 the short names are
profile/b1-bucket16 and profile/b4-bucket16; where only the first is there it is profile/bucket16.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pytest_npubench.errors import did_you_mean
from pytest_npubench.plain_text import counted

NUM_NAMED = 3


def short_ids(keys: Mapping[str, str]) -> dict[str, str]:
    """Returns the short name of each key. `keys`: SUITE/KIND/ID with the tail that its name has at the least, such as
    its axes ("bucket16"); empty where the kind alone may name it."""
    forms = {key: list(_forms(key, tail)) for key, tail in keys.items()}
    counts = Counter(form for key in keys for form in set(_names(key)))
    return {key: next((form for form in found if counts[form] == 1), key) for key, found in forms.items()}


def named(wanted: str, keys: Iterable[str]) -> Sequence[str]:
    """Returns the keys that a key, an id or a short name may mean, ascending: the key itself where it is one."""
    ascending = sorted(set(keys))
    if wanted in ascending:
        return [wanted]
    return [key for key in ascending if wanted in _names(key) or wanted == key.split("/", 2)[-1]]


def not_one(wanted: str, meant: Sequence[str], keys: Iterable[str], *, nothing: str) -> str:
    """Why `named` gave no single key. Either "a may be b or c; want one of them"; or `nothing` ("no accepted case") and
    the wanted name, with the nearest keys, the keys that hold the word, or how many keys there are."""
    if meant:
        return f"{wanted} may be {' or '.join(meant[:NUM_NAMED])}; want one of them"
    ascending = sorted(set(keys))
    forms = {form: key for key in ascending for form in (*_names(key)[1:], key.split("/", 2)[-1], key)}
    hint = did_you_mean(wanted, forms, most=NUM_NAMED, names=forms)
    if not hint and (alike := [key for key in ascending if wanted in key]):
        hint = f"; cases like it: {', '.join(alike[:NUM_NAMED])}"
    number = f"; there {'is' if len(ascending) == 1 else 'are'} {counted(len(ascending), 'case')}"
    return f"{nothing} {wanted!r}{hint or number}"


def _forms(key: str, tail: str) -> Iterator[str]:
    """Names of a case from the shortest on, each with no less than `tail`."""
    least = len(tail)
    return (name for name in _names(key) if len(name.split("/", 1)[-1] if "/" in name else "") >= least)


def _names(key: str) -> list[str]:
    """All short names that a key has: "kind", "kind/c", "kind/b-c", "kind/a-b-c"."""
    parts = key.split("/", 2)
    if len(parts) < 3:
        return [key]
    _, kind, case = parts
    begins = [index + 1 for index, sign in enumerate(case) if sign == "-"]
    return [kind, *(f"{kind}/{case[index:]}" for index in (*reversed(begins), 0))]
