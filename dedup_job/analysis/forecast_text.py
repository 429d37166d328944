"""A forecast, as text and JSON."""

from __future__ import annotations

from dataclasses import asdict
from math import inf
from typing import Any

from dedup_job.analysis.duplicate_rate import FEW_GROUPS, sample_size_for
from dedup_job.analysis.forecast import BYTES_PER_SECOND, FLUSH_SECONDS, WRITES_PER_CHUNK, Forecast

HOUR, MINUTE = 3600, 60
MB, GB = 1 << 20, 1 << 30


def forecast_json(forecast: Forecast) -> dict[str, Any]:
    """Return the forecast as one JSON object, in seconds, bytes, and records per second."""
    sampled = forecast.sampled
    return {
        "source": sampled.source,
        "records": sampled.records,
        "sampled": sampled.read,
        "stretches": sampled.stretches,
        "seconds": round(forecast.seconds, 1),
        "docs_per_second": round(1 / max(forecast.bounds.values()), 1),
        "limited_by": forecast.limit,
        "bounds": {name: finite_rate(1 / seconds) for name, seconds in forecast.bounds.items() if seconds},
        "memory": forecast.memory,
        "disk": forecast.disk,
        "dropped": forecast.dropped.as_json(),
        "groups_met_again": sampled.copies.repeated,
        "reread_per_record": round(forecast.reread, 4),
        "machine": asdict(forecast.machine),
        "rates": {name: finite_rate(rate) for name, rate in forecast.rates.items()},
        "sizes": {name: value and round(value, 1) for name, value in asdict(forecast.sizes).items()},
        **({"warnings": list(forecast.warnings)} if forecast.warnings else {}),
    }


def forecast_text(forecast: Forecast) -> str:
    """Return the forecast as text."""
    sampled, disk = forecast.sampled, forecast.disk
    return "\n".join(
        [
            f"estimate: a backfill of {sampled.source}, "
            f"about {sampled.records:,} records of {format_bytes(forecast.sizes.record)}",
            *(f"  WARNING: {warning}" for warning in forecast.warnings),
            f"  sample    {sampled.read:,} records in {sampled.stretches:,} stretches",
            f"  time      {format_duration(forecast.seconds)}, "
            f"{1 / max(forecast.bounds.values()):,.0f} documents/s; "
            f"limited by {forecast.limit}",
            f"  memory    {_memory(forecast)}",
            f"  disk      {format_bytes(sum(disk.values()))}: target {format_bytes(disk['target'])}, "
            f"ledger {format_bytes(disk['ledger'])}; without journal and oplog",
            f"  dropped   {_dropped(forecast)}",
            *_measured(forecast),
        ]
    )


def _memory(forecast: Forecast) -> str:
    memory = forecast.memory
    own = sum(size for name, size in memory.items() if name != "workers")
    parts = f"{format_bytes(memory['index'])} of them the index, {format_bytes(memory['cache'])} the cache"
    if forecast.sizes.worker is None:
        return f"{format_bytes(own)}, {parts}; without the workers"
    workers = f"{forecast.machine.workers} workers of {format_bytes(forecast.sizes.worker)}"
    return f"{format_bytes(own)}, {parts}; plus {workers}"


def _measured(forecast: Forecast) -> list[str]:
    rates, machine = forecast.rates, forecast.machine
    hardware = f"{machine.cores} processors{', shared with MongoDB' if machine.shared else ''}"
    return [
        f"  measured, documents/s, {machine.workers} workers on {hardware}:",
        f"    reading {rates['reading']:,.0f}, deciding {rates['deciding']:,.0f}, "
        f"fingerprinting {rates['fingerprinting']:,.0f} "
        f"({rates['fingerprinting_one_worker']:,.0f} by one worker)",
        "  assumed, because nothing is written:",
        f"    committing {rates['committing']:,.0f}, with {WRITES_PER_CHUNK} writes per chunk "
        f"at {FLUSH_SECONDS * 1000:.0f} ms and {BYTES_PER_SECOND / 1e6:.0f} MB/s",
    ]


def _dropped(forecast: Forecast) -> str:
    copies, span = forecast.sampled.copies, forecast.dropped
    ends = f"between {100 * span.low:.1f} and {100 * span.high:.1f} %"
    if forecast.sampled.read >= forecast.sampled.records:
        return f"{100 * span.likely:.1f} %: the sample has all records"
    if copies.repeated < FEW_GROUPS:
        size = sample_size_for(forecast.sampled.records, span.likely)
        hint = f"; for a closer estimate: --sample {size}" if size > forecast.sampled.read else ""
        return f"{ends}: only {copies.repeated} groups of duplicates occur more than once in the sample{hint}"
    return (
        f"{ends}, most likely {100 * span.likely:.1f} %; "
        f"{copies.repeated:,} groups occur more than once in the sample"
    )


def finite_rate(rate: float) -> float | None:
    """Return a rate for JSON: None for an infinite one."""
    return None if rate == inf else round(rate, 1)


def format_bytes(nbytes: float | None) -> str:
    """Return a number of bytes as text: GB, MB or bytes."""
    nbytes = nbytes or 0
    if nbytes >= GB:
        return f"{nbytes / GB:,.1f} GB"
    return f"{nbytes / MB:,.0f} MB" if nbytes >= MB else f"{nbytes:,.0f} bytes"


def format_duration(seconds: float) -> str:
    """Return a duration as text: hours, minutes or seconds."""
    if seconds >= HOUR:
        return f"{seconds / HOUR:,.1f} hours"
    return f"{seconds / MINUTE:,.0f} minutes" if seconds >= 5 * MINUTE else f"{seconds:,.0f} seconds"
