"""Shapes by name: adding one, finding one, and what to say where a name is taken or unknown."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Protocol, TypeVar

from pytest_npubench.errors import RegistryError


class Named(Protocol):
    @property
    def name(self) -> str: ...


ShapeT = TypeVar("ShapeT", bound=Named)


def add_shape(shapes: dict[str, ShapeT], shape: ShapeT) -> None:
    """Raises RegistryError on a name that is taken."""
    if shape.name in shapes:
        raise RegistryError(f"a decoder shape {shape.name!r} is there already")
    shapes[shape.name] = shape


def find_shape(shapes: Mapping[str, ShapeT], name: str) -> ShapeT:
    """Raises RegistryError with the known names."""
    try:
        return shapes[name]
    except KeyError:
        near = difflib.get_close_matches(name, shapes, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise RegistryError(f"unknown decoder shape {name!r}; known: {', '.join(shapes)}{hint}") from None
