"""Checks of a policy's settings: ConfigError names the policy, the setting, its value and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_npubench.errors import ConfigError

Setting = int | float | str | bool | None
Work = Mapping[str, int | None]
"""Settings that say how much prefill an iteration does."""
MERGE_CHUNKS = 16  # of a chunk: how far prompts merge, the paper's 8,192 of 512 (Layered Prefill, section 4.3)


def check_count(policy: str, name: str, value: object, *, most: int | None = None, none_allowed: bool = False) -> None:
    """A whole number from 1 to `most`; None too where that says something."""
    if value is None and none_allowed:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or (most is not None and value > most):
        allowed = "a whole number of at least 1" if most is None else f"a whole number from 1 to {most}"
        raise ConfigError(f"policy {policy}: {name} is {value!r}; want {allowed}{' or none' if none_allowed else ''}")


def check_layer_groups(policy: str, value: object, num_layers: int) -> None:
    """Checks for None, or a number of groups that leaves each a layer."""
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= num_layers:
        raise ConfigError(
            f"policy {policy}: num_layer_groups is {value!r}; want a whole number from 1 to {num_layers}, the model's "
            "layers, or none: as many as the prompt's tokens ask for"
        )


def check_yes_or_no(policy: str, name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"policy {policy}: {name} is {value!r}; want true or false")
