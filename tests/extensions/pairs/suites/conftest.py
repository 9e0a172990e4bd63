"""Campaigns on pairs of units that are made up, with a journal in the test's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.campaign import Campaign, CampaignSite
from pytest_npubench.campaign.protocol import Progress
from pytest_npubench.store.fingerprint import collect_host
from pytest_npubench.store.journal import JournalWriter, read_journal

DEVICES = (Device(family="fake", ordinal=0, name="Fake units"),)


@pytest.fixture
def make_campaign(tmp_path: Path) -> Iterator[Callable[..., Campaign]]:
    """make_campaign(plan, points, bench, earlier=False): `earlier` takes over what the test's journal holds."""
    path = tmp_path / "journal.jsonl"
    with ExitStack() as journals:

        def made(plan: Any, points: Any, bench: Any, *, earlier: bool = False) -> Campaign:
            writer = journals.enter_context(JournalWriter.open(path, host=collect_host(tmp_path), settings={}))
            runtime: Any = SimpleNamespace(compiles=[], num_process_compiles=0)
            return Campaign(
                plan,
                points,
                site=CampaignSite(devices=DEVICES, runtime=runtime, fingerprint="f"),
                make_bench=lambda runtime: bench(runtime, plan),
                settled=lambda measured: False,
                journal=writer,
                earlier=read_journal(path) if earlier else None,
                progress=Progress(),
            )

        yield made
