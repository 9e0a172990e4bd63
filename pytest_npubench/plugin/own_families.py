"""The device families of a test of one's own: one marker is one family, several are an item for each of them.

    @pytest.mark.gpu                      test_it[cuda], test_it[openvino]
    @pytest.mark.cpu @pytest.mark.cuda    test_it[cpu], test_it[cuda]

The items are made while pytest collects, from markers alone, so ids are the same on every machine and can be typed.
Each has the markers of its own family only: `-m cuda` leaves [cpu] out. Once devices have been looked for, the items of
families that are absent go, unless all are: then one stays and skips with every family's reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pytest_npubench import backends
from pytest_npubench.backends.protocol import Device, Probe
from pytest_npubench.core.families import all_families, declared
from pytest_npubench.core.hardware import CLASSES, FAMILIES
from pytest_npubench.plain_text import plain
from pytest_npubench.plugin.items import FIXTURE, is_own


def families_of(test: pytest.Item) -> list[str]:
    """The families that a test's markers name or stand for by a class, in their fixed order. A class adds none where a
    named family is of that class: cuda and gpu together are CUDA.

    A class that one of the named families is of stands for no other: cuda and gpu together are CUDA.
    """
    names = {marker.name for marker in test.iter_markers()}
    named = [one for one in FAMILIES if one in names]
    covered = {name for one in named for name in declared(one).classes}
    classes = {name for name in CLASSES if name in names} - covered
    if not classes:
        return named
    return [
        each.name for each in all_families() if each.name in named or (each.runs_programs and classes & {*each.classes})
    ]


def expand_families(metafunc: pytest.Metafunc) -> None:
    """An item for each family where there are several."""
    families = families_of(metafunc.definition)
    if len(families) > 1:
        parameters = [pytest.param(name, marks=getattr(pytest.mark, name), id=name) for name in families]
        metafunc.parametrize(FIXTURE, parameters, indirect=True)


class OneFamily(pytest.Function):
    """An item that expand_families made, without the markers of other families."""

    @property
    def family(self) -> str:
        return str(self.callspec.params[FIXTURE])

    def iter_markers_with_node(self, name: str | None = None) -> Iterator[tuple[Any, pytest.Mark]]:
        classes = declared(self.family).classes
        for node, mark in super().iter_markers_with_node(name):
            if mark.name not in (*FAMILIES, *CLASSES) or mark.name in (self.family, *classes):
                yield node, mark


def keep_to_families(items: list[pytest.Item]) -> None:
    """Put a OneFamily in the place of each item of several families; before pytest's own -m looks at markers."""
    for index, item in enumerate(items):
        if is_own(item) and isinstance(item, pytest.Function) and FIXTURE in _parameters(item):
            items[index] = _one_family(item)


def _one_family(item: pytest.Function) -> OneFamily:
    made: OneFamily = OneFamily.from_parent(
        item.parent,
        name=item.name,
        callspec=item.callspec,
        fixtureinfo=item._fixtureinfo,
        keywords={item.callspec.id: True},
        originalname=item.originalname,
    )
    made.own_markers[:] = item.own_markers  # with those that were added after collection
    made.stash = item.stash
    return made


def wanted(item: pytest.Item, probe: Probe) -> Probe:
    """What was found, without devices that are of no class that the item's markers name; all where they name none."""
    names = {marker.name for marker in item.iter_markers()}
    classes = [name for name in CLASSES if name in names]
    if not classes:
        return probe
    devices = tuple(device for device in probe.devices if any(name in _classes(device) for name in classes))
    if devices or not probe.devices:
        return replace(probe, devices=devices)
    present = ", ".join(device.name for device in probe.devices)
    return Probe(reason=f"no {' or '.join(map(str.upper, classes))} here: found {present}")


def _classes(device: Device) -> Sequence[str]:
    """The classes of a device: its own where its backend has devices of several classes, else its family's."""
    classes = getattr(backends.backend(device.family), "classes", None)
    if classes is not None:
        return tuple(classes(device))
    return declared(device.family).classes


class Siblings:
    """Items of one test for several families: which of them found a device, and what the others lack."""

    def __init__(self) -> None:
        self._lacking: dict[tuple[Any, ...], list[tuple[pytest.Item, str]]] = {}
        self._present: set[tuple[Any, ...]] = set()

    def add(self, item: pytest.Item, reason: str) -> None:
        """An item with the reason why no device can run it, empty where one can."""
        if not isinstance(item, OneFamily):
            return
        if reason:
            self._lacking.setdefault(_test_of(item), []).append((item, reason))
        else:
            self._present.add(_test_of(item))

    def needless(self) -> list[pytest.Item]:
        """The items to leave out. The one that stays where no family is present skips with all reasons."""
        left_out: list[pytest.Item] = []
        for test, lacking in self._lacking.items():
            items = [item for item, _ in lacking]
            if test not in self._present:
                first = items.pop(0)
                reasons = "; ".join(dict.fromkeys(reason for _, reason in lacking))
                first.add_marker(pytest.mark.skip(reason=plain(reasons)))
            left_out += items
        return left_out


def _test_of(item: OneFamily) -> tuple[Any, ...]:
    """What items of one test share: the test and its other parameters, which are the same objects."""
    others = ((name, id(value)) for name, value in item.callspec.params.items() if name != FIXTURE)
    return (item.parent.nodeid if item.parent else "", item.originalname, *sorted(others))


def _parameters(item: pytest.Function) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return dict(callspec.params) if callspec else {}


def wrong_families(item: pytest.Item) -> str:
    """Why a test with the fixture runs on no device, in words for its author."""
    families = families_of(item)
    if not families:
        return (
            f"{item.nodeid}: a test with the npubench fixture needs a marker of a device family "
            f"({', '.join(FAMILIES)}) or class ({', '.join(CLASSES)}); it has none of them"
        )
    if len(families) > 1:
        return (
            f"{item.nodeid}: the markers {', '.join(families)} were added after collection; mark the test itself, "
            "which makes one item for each"
        )
    return f"{item.nodeid}: npubench is asked for while the test runs; take it as an argument of the test"
