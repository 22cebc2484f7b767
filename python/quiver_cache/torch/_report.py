"""The line at the end of an epoch."""

from __future__ import annotations

from .. import _core
from .._log import human_bytes, logger

_FIGURES = (
    "epoch",
    "seconds",
    "samples",
    "batches",
    "waited_link_s",
    "waited_decode_s",
    "origin_bytes",
    "repeats",
    "skipped",
    "degraded",
)


def as_dict(report: _core.EpochReport) -> dict[str, float]:
    return {"hits": report.settled, **{name: getattr(report, name) for name in _FIGURES}}


def sentence(report: _core.EpochReport, on_bad_sample: str) -> str:
    hits = report.settled / report.samples if report.samples else 0.0
    parts = [
        f"waited {report.waited_link_s:.1f} s for the link, {report.waited_decode_s:.1f} s for decoding",
        f"{hits:.0%} hits".replace("%", " %"),
        f"{human_bytes(report.origin_bytes)} from the origin",
    ]
    if report.repeats:
        parts.append(f"{report.repeats:,} given twice for equal steps on all ranks")
    if report.skipped:
        did = "left out" if on_bad_sample == "skip" else "replaced"
        parts.append(f"{report.skipped:,} bad samples {did}")
    if report.degraded:
        parts.append("without a daemon")
    return f"epoch {report.epoch}: {report.samples:,} samples in {report.seconds:.1f} s ({'; '.join(parts)})"


def tell(report: _core.EpochReport, on_bad_sample: str) -> None:
    logger.info("%s", sentence(report, on_bad_sample))
