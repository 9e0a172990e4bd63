"""After selection: probe the selected families only, skip what cannot run with the reason, one case a device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import pytest

from pytest_npubench.backends import torch_missing, why_no_callables
from pytest_npubench.backends.protocol import Device, Probe
from pytest_npubench.campaign.memory import why_not_fit
from pytest_npubench.campaign.sharding import shard
from pytest_npubench.engines import REFERENCE
from pytest_npubench.errors import NpubenchError
from pytest_npubench.hardware import HardwareSpec
from pytest_npubench.plain_text import plain
from pytest_npubench.plugin.expansion import ExpandedCase
from pytest_npubench.plugin.own_families import OneFamily, Siblings, families_of, is_own, wanted
from pytest_npubench.plugin.shipped import node_id

if TYPE_CHECKING:
    from pytest_npubench.plugin.session import BenchSession

DEVICES = pytest.StashKey[tuple[Device, ...]]()
NODE_ID = pytest.StashKey[str]()  # without the device's number, so that a case is called the same on every machine


class Miss(IntEnum):
    """How far a case came that does not run here: the largest is the nearest miss."""

    NO_DEVICE = 0
    ANOTHER_DEVICE = 1
    TOO_FEW = 2  # devices of the right kind that were chosen
    CANNOT_RUN = 3  # on devices that are there: it does not fit, or what computes is not installed


@dataclass(frozen=True, slots=True)
class Skip:
    """Why a case does not run here."""

    miss: Miss
    reason: str


def select(session: BenchSession, items: list[pytest.Item]) -> None:
    """Rewrite `items` in place. Raises pytest.UsageError (exit code 4) where a required name cannot run."""
    left_out = _keep_shard(session, items)
    # a shard without any case of a required name leaves it to the others; one with some must be able to run them
    runnable = _all_names(left_out) - _all_names(items)
    selected: list[pytest.Item] = []
    siblings = Siblings()
    served: set[str] = set()
    for item in items:
        placed = _place(session, item, siblings)
        selected.extend(placed)
        if any(DEVICES in found.stash for found in placed):
            runnable |= _names(item)
            served |= _names(item) if _is_served(item) else set()
    needless = siblings.needless()
    # a process that opens an accelerator may keep it, so tests that do so here come after what children measure
    items[:] = sorted((item for item in selected if item not in needless), key=_opens_an_accelerator)
    if needless:
        session.config.hook.pytest_deselected(items=needless)
    # an engine that was asked for by name has to run: what does not need it speaks for nothing
    _check_required(session, runnable - (session.not_served.keys() - served))
    session.plan_campaigns(items)


def _opens_an_accelerator(item: pytest.Item) -> bool:
    return expanded_case(item) is None and DEVICES in item.stash and item.stash[DEVICES][0].family != "cpu"


def _keep_shard(session: BenchSession, items: list[pytest.Item]) -> list[pytest.Item]:
    """Leave out what other shards run: from ids and durations alone, so that every host works it out alike."""
    if session.settings.shard is None:
        return []
    index, count = session.settings.shard
    groups = dict.fromkeys(filter(None, map(_group, items)))
    durations_s = session.known_durations()
    mine = shard([(name, durations_s.get(name)) for name in groups], index, count)
    left_out = [item for item in items if _group(item) not in (*mine, None)]
    items[:] = [item for item in items if _group(item) in (*mine, None)]
    session.num_in_other_shards = len(left_out)
    session.config.hook.pytest_deselected(items=left_out)
    return left_out


def _group(item: pytest.Item) -> str | None:
    """What must stay together in one shard: a campaign, or a test of the user's own; None for other tests."""
    expanded = expanded_case(item)
    if expanded is not None:
        return expanded.plan.key
    return item.nodeid if is_own(item) else None


def expanded_case(item: pytest.Item) -> ExpandedCase | None:
    """The suite case that an item runs; None where it is none."""
    callspec = getattr(item, "callspec", None)
    found = callspec.params.get("npubench_case") if callspec else None
    return found if isinstance(found, ExpandedCase) else None


def _place(session: BenchSession, item: pytest.Item, siblings: Siblings) -> list[pytest.Item]:
    """The item once for each group of devices that can run it; marked as skipped where there is none."""
    expanded = expanded_case(item)
    if expanded is not None:
        spec, family = expanded.plan.spec, expanded.plan.spec.family
    elif is_own(item):
        return _place_own(session, item, siblings)
    else:
        return [item]
    if missing := _not_served(session, expanded):  # before any device is looked for: nobody would use it
        session.not_served.update(dict.fromkeys(_names(item), missing))
        item.add_marker(pytest.mark.skip(reason=plain(missing)))
        return [item]
    if unsupported := _unsupported(expanded):
        item.add_marker(pytest.mark.skip(reason=plain(unsupported)))
        return [item]
    groups, skip = _groups(session.probe(family), spec, session.settings.devices)
    if groups and expanded is not None:
        groups, skip = _able(groups, expanded)
    if skip is not None:
        _note_miss(session, item, skip)
        item.add_marker(pytest.mark.skip(reason=plain(skip.reason)))
        return [item]
    several = len(groups) > 1
    return [_on(item, group, several=several) for group in groups]


def _place_own(session: BenchSession, item: pytest.Item, siblings: Siblings) -> list[pytest.Item]:
    """A test of the user's own. One without exactly one family stays without a device, which its fixture reports."""
    families = families_of(item)
    if len(families) != 1:
        return [item]
    probe = wanted(item, session.probe(families[0]))
    if probe.devices and (reason := why_no_callables(families[0])):
        probe = Probe(reason=f"found {', '.join(dict.fromkeys(one.name for one in probe.devices))}, but {reason}")
    groups, skip = _groups(probe, None, session.settings.devices)
    siblings.add(item, "" if skip is None else skip.reason)
    if skip is not None:
        _note_miss(session, item, skip)
        if not isinstance(item, OneFamily):
            item.add_marker(pytest.mark.skip(reason=plain(skip.reason)))
        return [item]
    return [_on(item, group, several=len(groups) > 1) for group in groups]


def _is_served(item: pytest.Item) -> bool:
    expanded = expanded_case(item)
    return expanded is not None and expanded.engine is not None


def _not_served(session: BenchSession, expanded: ExpandedCase) -> str:
    """Why the engine that was asked for by name cannot serve the case's devices here; empty where it can."""
    return "" if session.settings.engine == REFERENCE else expanded.why_not_served


def _unsupported(expanded: ExpandedCase | None) -> str:
    """Why the case's engine cannot do what it needs; empty where it can."""
    try:
        return "" if expanded is None else expanded.suite.unsupported(expanded.plan, expanded.points)
    except NpubenchError:  # the case itself says so
        return ""


def _groups(
    probe: Probe, spec: HardwareSpec | None, ordinals: tuple[int, ...] | None
) -> tuple[list[tuple[Device, ...]], Skip | None]:
    """The device groups that match, or why none does."""
    if not probe.devices:
        return [], Skip(Miss.NO_DEVICE, probe.reason)
    found = [device for device in probe.devices if spec is None or spec.matches(device.name)]
    names = ", ".join(dict.fromkeys(device.name for device in probe.devices))
    if spec is not None and not found:
        return [], Skip(Miss.ANOTHER_DEVICE, f"no {spec.title}: found {names}")
    chosen = [device for device in found if ordinals is None or device.ordinal in ordinals]
    if not chosen:
        asked = ",".join(map(str, ordinals or ()))
        return [], Skip(Miss.TOO_FEW, f"no device of --npubench-devices {asked}: found {_ids(found)}")
    size = spec.tensor_parallel if spec else 1
    groups = [tuple(chosen[start : start + size]) for start in range(0, len(chosen) - size + 1, size)]
    if not groups:
        return [], Skip(Miss.TOO_FEW, f"needs {size} devices together, found {len(chosen)}: {_ids(chosen)}")
    return groups, None


def _able(groups: Sequence[tuple[Device, ...]], expanded: ExpandedCase) -> tuple[list[tuple[Device, ...]], Skip | None]:
    """The groups that can run the case: what computes is installed, and the case fits their memory."""
    plan = expanded.plan
    if missing := expanded.why_not_served:
        return [], Skip(Miss.CANNOT_RUN, missing)
    if plan.framework == "torch" and (missing := torch_missing(plan.spec.family)):
        return [], Skip(Miss.CANNOT_RUN, missing)
    reasons = {group: why_not_fit(expanded.suite.memory, expanded.case, expanded.kind, plan, group) for group in groups}
    able = [group for group, reason in reasons.items() if not reason]
    return able, None if able else Skip(Miss.CANNOT_RUN, next(iter(reasons.values())))


def _note_miss(session: BenchSession, item: pytest.Item, skip: Skip) -> None:
    """Keep the nearest miss of each name that --npubench-require may have, the first of equally near ones."""
    for name in _names(item):
        known = session.misses.get(name)
        if known is None or skip.miss > known.miss:
            session.misses[name] = skip


def _on(item: pytest.Item, group: tuple[Device, ...], *, several: bool) -> pytest.Item:
    """The item on these devices. With several groups each gets an item of its own, named by its first device."""
    placed = _copy(item, f"@{group[0].ordinal}") if several else item
    placed.stash[DEVICES], placed.stash[NODE_ID] = group, node_id(item)
    return placed


def _copy(item: pytest.Item, suffix: str) -> pytest.Item:
    """The item under another name, which goes into its node id; callspec and originalname would undo that in pytest 9,
    so they follow. Values of @pytest.mark.parametrize are known to the item's own fixture information alone.
    """
    assert isinstance(item, pytest.Function)
    name = f"{item.name[:-1]}{suffix}]" if item.name.endswith("]") else f"{item.name}{suffix}"
    copy = type(item).from_parent(item.parent, name=name, callobj=item.obj, fixtureinfo=item._fixtureinfo)
    copy.originalname = item.originalname
    if hasattr(item, "callspec"):
        copy.callspec = item.callspec
    copy.own_markers[:] = item.own_markers  # with those that were added after collection
    copy.keywords.update({mark.name: mark for mark in item.own_markers})
    return copy


def _all_names(items: Iterable[pytest.Item]) -> set[str]:
    return {name for item in items for name in _names(item)}


def _names(item: pytest.Item) -> set[str]:
    """What --npubench-require may call the item by: its markers and its hardware."""
    expanded = expanded_case(item)
    markers = {marker.name for marker in item.iter_markers()}
    return markers | ({expanded.plan.spec.name, expanded.plan.spec.file_name} if expanded else set())


def _check_required(session: BenchSession, runnable: set[str]) -> None:
    for name in session.settings.require:
        if name not in runnable:
            raise pytest.UsageError(plain(f"--npubench-require {name}: {session.why_not(name)}"))


def _ids(devices: Iterable[Device]) -> str:
    return ", ".join(device.id for device in devices) or "none"
