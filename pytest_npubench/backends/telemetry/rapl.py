"""Energy of the host's processors by RAPL, as the kernel's powercap framework tells it (Intel, and AMD from Zen on).

A package's counter holds its cores and caches; `dram` is counted apart from it and added; `core` and `uncore` are parts
of the package, `psys` is the whole platform with the packages inside, and `intel-rapl-mmio` is the same package read
another way: none of these is added. The counters are the whole machine's, whoever used it.

A counter is in microjoules and begins again after max_energy_range_uj. Worked example: of a range of 10 J, 9 J and then
2 J are 3 J more. Two wraps between two readings cannot be told from one: a range of 262 kJ lasts 22 minutes at 200 W.
"""

from __future__ import annotations

from pathlib import Path

from pytest_npubench.backends.telemetry.linux import SYS, read_number, read_text

ABSENT = (
    "no RAPL counter at {place}: a virtual machine or container is shown none, an old processor has none, and the "
    "kernel's module is intel_rapl_msr, also for AMD"
)
GRANT = "grant it with: sudo chmod a+r {place}/intel-rapl*/energy_uj (until the next boot)"


class Rapl:
    """All packages, and their memory where it is counted apart, as one counter. The folders are looked for once."""

    def __init__(self, sys: Path = SYS) -> None:
        self._folder = sys / "class" / "powercap"
        self._domains = [_Domain(folder) for folder in sorted(self._folder.glob("intel-rapl:*")) if _is_counted(folder)]

    def energy_j(self) -> tuple[float | None, str | None]:
        """Joules since some start, or None and why: "unavailable: ..." naming the path and how to be let in."""
        if not self._domains:
            return None, f"unavailable: {ABSENT.format(place=self._folder)}"
        try:
            return sum(domain.energy_j() for domain in self._domains), None
        except PermissionError as error:
            return None, f"unavailable: {error.filename}: permission denied; {GRANT.format(place=self._folder)}"
        except (OSError, ValueError) as error:
            return None, f"unavailable: {_path(error, self._folder)}: {_words(error)}"


class _Domain:
    """One counter, and what it wrapped so far."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "energy_uj"
        self._range_uj = read_number(folder / "max_energy_range_uj") or 0.0
        self._latest_uj = 0.0
        self._wrapped_uj = 0.0

    def energy_j(self) -> float:
        """Raises OSError where the counter cannot be read, ValueError where it holds no number."""
        value = float(self._path.read_text(encoding="utf-8"))
        if value < self._latest_uj:
            self._wrapped_uj += self._range_uj
        self._latest_uj = value
        return (value + self._wrapped_uj) / 1e6


def _is_counted(folder: Path) -> bool:
    """intel-rapl:0 is a package or the platform, intel-rapl:0:1 a part of a package or its memory."""
    name = read_text(folder / "name") or ""
    return name != "psys" if folder.name.count(":") == 1 else name == "dram"


def _path(error: OSError | ValueError, default: Path) -> str:
    return str(getattr(error, "filename", None) or default)


def _words(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
