"""One backend a family: ours from its file, others by registering; duplicates and empty files are refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest

from pytest_npubench import backends
from pytest_npubench.backends.protocol import Device, Probe, Runtime
from pytest_npubench.core import families, registry
from pytest_npubench.core.hardware import FAMILIES
from pytest_npubench.errors import RegistryError


class FakeBackend:
    """A FAKE family of a third party."""

    def __init__(self, family: str) -> None:
        self.family = family

    def probe(self, timeout_s: float) -> Probe:
        return Probe(reason="a fake has no devices")

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _nothing_registered() -> Iterator[None]:
    before = dict(families.BACKENDS.added)
    families.BACKENDS.added.clear()
    yield
    families.BACKENDS.added.clear()
    families.BACKENDS.added.update(before)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_registered_backend_takes_the_place_of_ours(family: str) -> None:
    mine = FakeBackend(family)
    assert backends.backend(family) is not mine
    backends.register(mine)
    assert backends.backend(family) is mine


def test_a_second_one_is_refused() -> None:
    first = FakeBackend("tpu")
    backends.register(first)
    with pytest.raises(RegistryError, match="two backends for family 'tpu' were registered"):
        backends.register(FakeBackend("tpu"))
    assert backends.backend("tpu") is first


def test_an_unknown_family_is_named_with_the_known_ones() -> None:
    for call in (lambda: backends.register(FakeBackend("abacus")), lambda: backends.backend("abacus")):
        with pytest.raises(RegistryError, match=f"^no device family 'abacus'; known: {', '.join(FAMILIES)}$"):
            call()


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(SimpleNamespace(), id="no BACKEND"),
        pytest.param(SimpleNamespace(BACKEND=FakeBackend("cuda")), id="another family's"),
    ],
)
def test_a_file_without_its_own_backend(monkeypatch: pytest.MonkeyPatch, module: SimpleNamespace) -> None:
    """The import is a FAKE that gives this module for backends/tpu.py."""
    monkeypatch.setattr(registry, "import_module", lambda name: module)
    with pytest.raises(RegistryError, match=r"backends/tpu\.py does not define BACKEND of family 'tpu'"):
        backends.backend("tpu")
