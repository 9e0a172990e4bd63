"""Who measured: the device, its software and its host. Tells whether two results may be compared, and why not.

Two results may be compared when their keys are equal: accelerator, device class, driver, runtime, compiler, power
policy, firmware and clock policy. GPUs of one model differ by 8 % on average and 22 % at most (Sinha et al., arXiv
2208.11035), so the device class is part of the key; the host is not. A measurement may be resumed only where
everything is equal (`digest`).

firmware and clock_policy are written where they are known only: what was written before they existed keeps its digest.

Worked example: with drivers 570.86 and 580.12, a.differences(b) == ("driver 570.86 -> 580.12",).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_npubench.core.record_reader import JSON, WrongEntryError
from pytest_npubench.errors import ConfigError, StoreError
from pytest_npubench.store.host import HostFacts, collect_host
from pytest_npubench.store.json_text import JsonError, canonical, take

LATER_PARTS = ("firmware", "clock_policy")  # absent from what the first versions wrote


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What a backend knows of its device, as text; None for unknown. `extra` holds facts that stay the same all day."""

    family: str
    name: str
    device_class: str
    driver: str | None
    runtime: str | None
    compiler: str | None
    power_policy: str | None = None
    firmware: str | None = None
    clock_policy: str | None = None
    extra: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return _without_later_unknown({name: getattr(self, name) for name in self.__slots__}) | {
            "extra": dict(self.extra)
        }

    @classmethod
    def from_json(cls, mapping: Any, place: str = "device") -> DeviceFacts:
        """Fields this version does not know are left aside. Raises WrongEntryError naming the field."""
        return JSON.record(cls, _with_later(mapping), place, others=mapping)


@dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintKey:
    """The parts that two results must share to be compared; None for unknown."""

    accelerator: str
    device_class: str
    driver: str | None
    runtime: str | None
    compiler: str | None
    power_policy: str | None
    firmware: str | None = None
    clock_policy: str | None = None

    def to_json(self) -> dict[str, str | None]:
        return _without_later_unknown({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, mapping: Any, place: str = "key") -> FingerprintKey:
        """Raises WrongEntryError naming a field that is missing, wrong or unknown."""
        return JSON.record(cls, _with_later(mapping), place)

    def digest(self) -> str:
        """8 hex digits, the part of a baseline's file name that tells keys apart."""
        return hashlib.sha256(canonical(self.to_json())).hexdigest()[:8]

    def is_of_device(self, other: FingerprintKey) -> bool:
        """Whether both are of the same accelerator in the same device class, whatever drove it."""
        return (self.accelerator, self.device_class) == (other.accelerator, other.device_class)

    def differences(self, other: FingerprintKey, across: Collection[str] = ()) -> tuple[str, ...]:
        """What differs from `other`, but for the parts named in `across`. Raises ConfigError on an unknown part."""
        if unknown := set(across) - set(self.__slots__):
            raise ConfigError(f"cannot compare across {min(unknown)!r}: allowed are {', '.join(self.__slots__)}")
        mine, theirs = self.to_json(), other.to_json()
        return _differences(*({name: part[name] for name in part if name not in across} for part in (mine, theirs)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """A device with the host and the software that drove it."""

    device: DeviceFacts
    host: HostFacts

    def key(self) -> FingerprintKey:
        device = self.device
        return FingerprintKey(
            accelerator=device.name,
            device_class=device.device_class,
            driver=device.driver,
            runtime=device.runtime,
            compiler=device.compiler,
            power_policy=device.power_policy,
            firmware=device.firmware,
            clock_policy=device.clock_policy,
        )

    def differences(self, other: Fingerprint) -> tuple[str, ...]:
        """Everything that differs, this one's value first, the parts of the key before the rest."""
        return _differences(self._facts(), other._facts())

    def digest(self) -> str:
        """12 hex digits over everything, git revision and host included: equal where a measurement may be resumed."""
        return hashlib.sha256(canonical(self.to_json())).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        return {"device": self.device.to_json(), "host": self.host.to_json()}

    @classmethod
    def from_json(cls, mapping: Any, place: str = "fingerprint") -> Fingerprint:
        """Raises StoreError naming the field that is missing or wrong."""
        try:
            return cls(
                device=DeviceFacts.from_json(take(mapping, "device", (dict,), place), f"{place}.device"),
                host=HostFacts.from_json(take(mapping, "host", (dict,), place), f"{place}.host"),
            )
        except (JsonError, WrongEntryError) as error:
            raise StoreError(str(error)) from None

    def _facts(self) -> dict[str, object]:
        host = self.host.to_json()
        libraries = host.pop("libraries")
        return {
            **self.key().to_json(),
            "family": self.device.family,
            **{f"device {name}": value for name, value in self.device.extra},
            "host": host.pop("name"),
            **host,
            **libraries,
        }


def collect(device: DeviceFacts, rootdir: Path) -> Fingerprint:
    """The fingerprint of `device` in this process; `rootdir` is the folder whose git revision is recorded."""
    return Fingerprint(device=device, host=collect_host(rootdir))


def _with_later(mapping: Any) -> Any:
    """With the parts that earlier versions did not know, None where they are missing."""
    return {**dict.fromkeys(LATER_PARTS), **mapping} if isinstance(mapping, Mapping) else mapping


def _without_later_unknown(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parts.items() if value is not None or name not in LATER_PARTS}


def _differences(mine: Mapping[str, object], theirs: Mapping[str, object]) -> tuple[str, ...]:
    names = [*mine, *(name for name in theirs if name not in mine)]
    pairs = ((name, mine.get(name), theirs.get(name)) for name in names)
    return tuple(f"{name} {_shown(old)} -> {_shown(new)}" for name, old, new in pairs if old != new)


def _shown(value: object) -> str:
    return "unknown" if value is None else str(value)
