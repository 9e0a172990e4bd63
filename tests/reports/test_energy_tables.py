"""Tables of joules and money a token and of what binds a step, where cases tell them."""

from __future__ import annotations

from dataclasses import asdict

from pytest_npubench.suites.buckets.profile_detail import Binding, EnergyDetail, PriceDetail, ProfileDetail
from pytest_npubench.suites.buckets.report.profile import binding_table, energy_table, price_table
from pytest_npubench.suites.buckets.report.section import parts
from pytest_npubench.verdict.case_record import Cases

from .served import case_record


def cases(
    bucket: int, energy: EnergyDetail | None, binding: dict[str, Binding] | None, price: PriceDetail | None = None
) -> Cases:
    detail = ProfileDetail(bucket=bucket, ttft_s=0.01, tbt_s=0.001, energy=energy, price=price, binding=binding)
    return Cases.read([case_record("profile", asdict(detail), axes=(("bucket", bucket),))])


def test_what_is_known_has_a_row() -> None:
    found = cases(
        128,
        EnergyDetail(prompt_token_j=0.1, output_token_j=1.25, power_w=102.0),
        {"decode": Binding(constraint="launch", of_compute=9.0, of_memory=2.7)},
        PriceDetail(currency="USD", prompt=0.25, output=1.5),
    )
    energy, price, binding = (
        table(found.of("profile", ProfileDetail)) for table in (energy_table, price_table, binding_table)
    )
    assert price is not None
    assert [row[2:] for row in price.rows] == [("0.25", "1.5")]
    assert energy is not None
    assert energy.rows == (("128", "0.1", "1.25", "102"),)
    assert binding is not None
    assert [row[2:] for row in binding.rows] == [("decode", "launch", "9.00", "2.70")]
    shown = {table.caption for table in parts(found, ())[1] if table is not None}
    assert {energy.caption, price.caption, binding.caption} <= shown


def test_without_a_counter_and_peaks_there_is_none() -> None:
    found = cases(128, EnergyDetail(why_not="unavailable: no counter"), None).of("profile", ProfileDetail)
    assert energy_table(found) is None
    assert price_table(found) is None
    assert binding_table(found) is None
