"""After selection: probe the selected families only, skip what cannot run with the reason, one case a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

import pytest

from pytest_npubench import suites
from pytest_npubench.backends import torch_missing, why_no_callables
from pytest_npubench.backends.jax_probe import jax_missing
from pytest_npubench.backends.protocol import Device, Probe
from pytest_npubench.campaign.memory import why_not_fit
from pytest_npubench.core.device_names import NEXT_STEP, spelled_characters
from pytest_npubench.engines import REFERENCE
from pytest_npubench.errors import NpubenchError, did_you_mean
from pytest_npubench.plain_text import plain
from pytest_npubench.plugin.items import (
    DEVICES,
    NODE_ID,
    PROBE_FAILED,
    ExpandedCase,
    expanded_case,
    is_own,
    node_id,
)

if TYPE_CHECKING:
    from pytest_npubench.core.hardware import HardwareSpec
    from pytest_npubench.plugin.settings import Settings


class Miss(IntEnum):
    """How far a case came that does not run here: the largest is the nearest miss."""

    NO_DEVICE = 0
    ANOTHER_DEVICE = 1
    TOO_FEW = 2  # devices of the right kind that were chosen
    CANNOT_RUN = 3  # on devices that are there: it does not fit, or what computes is not installed


@dataclass(frozen=True, slots=True)
class Skip:
    """Why a case does not run here. It fails where nobody could look for its devices."""

    miss: Miss
    reason: str
    failed: bool = False

    def mark(self, item: pytest.Item) -> None:
        if self.failed:
            item.stash[PROBE_FAILED] = self.reason
        else:
            item.add_marker(pytest.mark.skip(reason=plain(self.reason)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What runs of a session's items, and why others do not.

    items: in their order, also items that are skipped with a reason. deselected: items of other shards, and items of
    absent families whose siblings run. runnable: the markers and hardware names that cases run for, here or in other
    shards. not_served: by name, why the engine that was asked for serves no case of it. misses: by name, why no case of
    it runs here, from the case that came furthest.
    """

    items: Sequence[pytest.Item]
    deselected: Sequence[pytest.Item]
    num_in_other_shards: int
    runnable: frozenset[str]
    not_served: Mapping[str, str]
    misses: Mapping[str, Skip]


@dataclass(slots=True)
class _Reasons:
    """Why cases do not run, by name, while items are looked at."""

    not_served: dict[str, str] = field(default_factory=dict)
    misses: dict[str, Skip] = field(default_factory=dict)

    def note_miss(self, item: pytest.Item, skip: Skip) -> None:
        """Keep the nearest miss of each name that --npubench-require may have, the first of equally near ones."""
        for name in _names(item):
            nearest = self.misses.get(name)
            if nearest is None or skip.miss > nearest.miss:
                self.misses[name] = skip


@dataclass(frozen=True, slots=True)
class _Here:
    """What is looked at to place an item: the devices of a family, which of them were asked for, and the engine; and
    what comes of it. user_tests are the user's own tests, each with the reason why it runs on no device, or ""."""

    probe: Callable[[str], Probe]
    ordinals: tuple[int, ...] | None
    engine: str
    reasons: _Reasons
    user_tests: list[tuple[pytest.Item, str]]


def select(
    items: Sequence[pytest.Item],
    settings: Settings,
    probe: Callable[[str], Probe],
    known_durations: Callable[[], Mapping[str, float]],
) -> Selection:
    """Place each item on the devices that can run it. `probe` looks for the devices of a family; known_durations tells
    what groups of cases took, where there are shards."""
    kept, left_out = _keep_shard(items, settings, known_durations)
    # a shard without any case of a required name leaves it to the others; one with some must be able to run them
    runnable = _all_names(left_out) - _all_names(kept)
    selected: list[pytest.Item] = []
    here = _Here(probe, settings.devices, settings.engine, _Reasons(), [])
    served: set[str] = set()
    for item in kept:
        placed = _placed(item, here)
        selected.extend(placed)
        if any(DEVICES in found.stash for found in placed):
            runnable |= _names(item)
            served |= _names(item) if _is_served(item) else set()
    needless = _needless(here.user_tests)
    return Selection(
        # a process that opens an accelerator may keep it, so tests that do so here come after what children measure
        items=sorted((item for item in selected if item not in needless), key=_opens_an_accelerator),
        deselected=[*left_out, *needless],
        num_in_other_shards=len(left_out),
        # an engine that was asked for by name has to run: a case that needs no engine does not stand for one that does
        runnable=frozenset(runnable - (here.reasons.not_served.keys() - served)),
        not_served=here.reasons.not_served,
        misses=here.reasons.misses,
    )


def why_not(name: str, selection: Selection, specs: Mapping[str, HardwareSpec], probe: Callable[[str], Probe]) -> str:
    """Why no selected case runs on what --npubench-require calls `name`."""
    if name in selection.not_served:
        return selection.not_served[name]
    if name in specs and (missing := specs[name].not_run):
        return missing
    families = sorted({spec.family for spec in specs.values() if name in (*spec.markers, spec.name)})
    nearest = selection.misses.get(name)
    if not families and nearest is not None:  # a suite's marker, or one of the tests' own
        return nearest.reason
    if not families and name in suites.names():
        return f"no case of the suite {name} was selected"
    if not families:
        markers = sorted({marker for spec in specs.values() for marker in (*spec.markers, spec.name)})
        return f"no such marker or hardware; known: {', '.join(markers)}{did_you_mean(name, markers)}"
    probes = [probe(family) for family in families]
    if absent := [probe_here.reason for probe_here in probes if not probe_here.devices]:
        return "; ".join(absent)
    present = ", ".join(device.name for probe_here in probes for device in probe_here.devices)
    if nearest is None:
        return f"found {present}, but no case of it was selected"
    if nearest.miss is Miss.ANOTHER_DEVICE:
        of_families = [next(spec for spec in specs.values() if spec.family == family) for family in families]
        steps = "".join(map(_next_step, probes, of_families))
        return nearest.reason if name in specs else f"found {present}, which no selected case is for{steps}"
    return f"found {present}, but {nearest.reason}"


def _needless(user_tests: Sequence[tuple[pytest.Item, str]]) -> Sequence[pytest.Item]:
    if not user_tests:
        return ()
    from pytest_npubench.plugin.own_families import Siblings

    siblings = Siblings()
    for item, reason in user_tests:
        siblings.add(item, reason)
    return siblings.needless()


def _opens_an_accelerator(item: pytest.Item) -> bool:
    return expanded_case(item) is None and DEVICES in item.stash and item.stash[DEVICES][0].family != "cpu"


def _keep_shard(
    items: Sequence[pytest.Item], settings: Settings, known_durations: Callable[[], Mapping[str, float]]
) -> tuple[Sequence[pytest.Item], Sequence[pytest.Item]]:
    """Ours, and what other shards run: from ids and durations alone, so that every host works it out alike."""
    if settings.shard is None:
        return items, ()
    from pytest_npubench.campaign.sharding import shard

    index, count = settings.shard
    groups = dict.fromkeys(filter(None, map(_group, items)))
    durations_s = known_durations()
    mine = shard([(name, durations_s.get(name)) for name in groups], index, count)
    kept = [item for item in items if _group(item) in (*mine, None)]
    return kept, [item for item in items if _group(item) not in (*mine, None)]


def _group(item: pytest.Item) -> str | None:
    """What must stay together in one shard: a campaign, or a test of the user's own; None for other tests."""
    expanded = expanded_case(item)
    if expanded is not None:
        return expanded.plan.key
    return item.nodeid if is_own(item) else None


def _placed(item: pytest.Item, here: _Here) -> list[pytest.Item]:
    """The item once for each group of devices that can run it; marked as skipped where there is none."""
    expanded = expanded_case(item)
    if expanded is not None:
        spec, family = expanded.plan.spec, expanded.plan.spec.family
    elif is_own(item):
        return _placed_user_test(item, here)
    else:
        return [item]
    if missing := _not_served(expanded, here.engine):  # before any device is looked for: nobody would use it
        here.reasons.not_served.update(dict.fromkeys(_names(item), missing))
        item.add_marker(pytest.mark.skip(reason=plain(missing)))
        return [item]
    if unsupported := _unsupported(expanded):
        item.add_marker(pytest.mark.skip(reason=plain(unsupported)))
        return [item]
    engine_probe = None if expanded is None or expanded.engine is None else expanded.engine.probe(spec)
    groups, skip = _groups(engine_probe or here.probe(family), spec, here.ordinals)
    if groups and expanded is not None:
        groups, skip = _able(groups, expanded)
    if skip is not None:
        here.reasons.note_miss(item, skip)
        skip.mark(item)
        return [item]
    several = len(groups) > 1
    return [_on(item, group, several=several) for group in groups]


def _placed_user_test(item: pytest.Item, here: _Here) -> list[pytest.Item]:
    """A test of the user's own. One without exactly one family stays without a device, which its fixture reports."""
    from pytest_npubench.plugin.own_families import OneFamily, families_of, wanted

    families = families_of(item)
    if len(families) != 1:
        return [item]
    probe = wanted(item, here.probe(families[0]))
    if probe.devices and (reason := why_no_callables(families[0])):
        probe = Probe(reason=f"found {', '.join(dict.fromkeys(one.name for one in probe.devices))}, but {reason}")
    groups, skip = _groups(probe, None, here.ordinals)
    failed = skip is not None and skip.failed
    here.user_tests.append((item, "" if skip is None or failed else skip.reason))
    if skip is not None:
        here.reasons.note_miss(item, skip)
        if failed or not isinstance(item, OneFamily):
            skip.mark(item)
        return [item]
    return [_on(item, group, several=len(groups) > 1) for group in groups]


def _is_served(item: pytest.Item) -> bool:
    expanded = expanded_case(item)
    return expanded is not None and expanded.engine is not None


def _not_served(expanded: ExpandedCase, engine: str) -> str:
    """Why the engine that was asked for by name cannot serve the case's devices here; empty where it can."""
    return "" if engine == REFERENCE else expanded.why_not_served


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
        return [], Skip(Miss.NO_DEVICE, probe.reason, probe.failed)
    matching = [device for device in probe.devices if spec is None or spec.matches(device.name)]
    names = ", ".join(dict.fromkeys(device.name for device in probe.devices))
    if spec is not None and not matching:
        return [], Skip(Miss.ANOTHER_DEVICE, f"no {spec.title}: found {names}{_next_step(probe, spec)}")
    chosen = [device for device in matching if ordinals is None or device.ordinal in ordinals]
    if not chosen:
        asked = ",".join(map(str, ordinals or ()))
        return [], Skip(Miss.TOO_FEW, f"no device of --npubench-devices {asked}: found {_ids(matching)}")
    size = spec.tensor_parallel if spec else 1
    groups = [tuple(chosen[start : start + size]) for start in range(0, len(chosen) - size + 1, size)]
    if not groups:
        return [], Skip(Miss.TOO_FEW, f"needs {size} devices together, found {len(chosen)}: {_ids(chosen)}")
    return groups, None


def _next_step(probe: Probe, spec: HardwareSpec) -> str:
    """What to do about devices that no hardware file describes, or which file describes one more closely than this one,
    whose patterns hit its name too; empty where there is neither."""
    for device in probe.devices:
        if spelled_characters(spec.match, device.name) is not None:
            return f" ({device.id}: {', '.join(spec.files_of(device.name))} describes it more closely)"
    strangers = [device.id for device in probe.devices if not spec.files_of(device.name)]
    return f" ({strangers[0]}: {NEXT_STEP})" if strangers else ""


def _able(groups: Sequence[tuple[Device, ...]], expanded: ExpandedCase) -> tuple[list[tuple[Device, ...]], Skip | None]:
    """The groups that can run the case: what computes is installed, and the case fits their memory."""
    plan = expanded.plan
    if missing := expanded.why_not_served:
        return [], Skip(Miss.CANNOT_RUN, missing)
    family = plan.spec.family
    missing = jax_missing(family) if family == "cpu" else ""  # other families' devices are those that jax shows
    if missing := missing or (torch_missing(family) if plan.framework == "torch" else ""):
        return [], Skip(Miss.CANNOT_RUN, missing)
    reasons = {group: why_not_fit(expanded.suite.memory, expanded.case, expanded.kind, plan, group) for group in groups}
    able = [group for group, reason in reasons.items() if not reason]
    return able, None if able else Skip(Miss.CANNOT_RUN, next(iter(reasons.values())))


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


def _ids(devices: Iterable[Device]) -> str:
    return ", ".join(device.id for device in devices) or "none"
