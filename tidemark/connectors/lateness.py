"""How late records become visible: measured on every run, so that the safety window is chosen and not guessed.

A record is late if it lands with a cursor below the one that was committed when the run began. It is found because the run
begins a safety window earlier, or because it reads everything.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta

import numpy as np
import pyarrow as pa

# Upper ends of the buckets, in seconds; one more bucket is for whatever is later.
EDGES = (1, 5, 15, 60, 300, 900, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400)
NAMES = ("1 s", "5 s", "15 s", "1 min", "5 min", "15 min", "1 h", "6 h", "1 day", "7 days", "30 days", "more")
NONE = (0,) * len(NAMES)

# The share of late records that the suggested window takes in.
ENOUGH = 0.999


def late_counts(cursors: pa.Array, committed: int) -> tuple[int, ...]:
    """How many of the cursors lie how far below the committed one, in buckets; both in microseconds."""
    instants = cursors.drop_null().to_numpy(zero_copy_only=False)
    late = (committed - instants[instants < committed]) / 1e6
    counted = np.bincount(np.searchsorted(EDGES, late), minlength=len(NAMES))
    return tuple(int(each) for each in counted)


def added(histograms: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The histogram of several runs together."""
    return tuple(int(each) for each in np.sum([NONE, *histograms], axis=0))


def suggested_window(histogram: Sequence[int]) -> timedelta | None:
    """The smallest safety window among the buckets' ends that takes in nearly all late records. None if none were late."""
    total = sum(histogram)
    if not total:
        return None
    reached = np.cumsum(histogram) >= ENOUGH * total
    return timedelta(seconds=EDGES[min(int(np.argmax(reached)), len(EDGES) - 1)])


def iso(window: timedelta) -> str:
    """A span as a manifest writes it."""
    seconds = int(window.total_seconds())
    for unit, size in (("D", 86400), ("H", 3600), ("M", 60)):
        if seconds % size == 0 and seconds:
            return f"P{seconds // size}D" if unit == "D" else f"PT{seconds // size}{unit}"
    return f"PT{seconds}S"


def markdown(histogram: Sequence[int]) -> str:
    """The histogram as text with bars, for people who look at a run."""
    if not any(histogram):
        return "no record was late"
    most = max(histogram)
    rows = [
        f"| {name} | {count} | {'█' * -(-count * 20 // most)} |"
        for name, count in zip(NAMES, histogram, strict=True)
        if count
    ]
    return "\n".join(["| late by up to | records | |", "|---|---|---|", *rows])


def plot(histogram: Sequence[int], title: str) -> str:
    """The histogram as an SVG picture: one bar a bucket, with its count, on a scale that shows small ones too."""
    width, height, base = 60, 220, 180
    most = max(np.log1p(histogram).max(), 1e-9)
    bars = []
    for place, (name, count) in enumerate(zip(NAMES, histogram, strict=True)):
        tall = float(np.log1p(count) / most) * 130
        left = 20 + place * width
        bars.append(f'<rect x="{left}" y="{base - tall:.1f}" width="{width - 12}" height="{tall:.1f}" fill="#2f6f8f"/>')
        bars.append(f'<text x="{left + 24}" y="{base - tall - 6:.1f}">{count:,}</text>')
        bars.append(f'<text x="{left + 24}" y="{base + 16}">≤ {name}</text>'.replace("≤ more", "more"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{40 + width * len(NAMES)}" height="{height}" '
        f'font-family="sans-serif" font-size="11" text-anchor="middle"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="20" y="22" font-size="14" text-anchor="start">{title}</text>{"".join(bars)}'
        f'<line x1="20" y1="{base}" x2="{20 + width * len(NAMES)}" y2="{base}" stroke="#333"/></svg>'
    )
