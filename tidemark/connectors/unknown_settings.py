"""How every kind names settings that it does not have."""

from collections.abc import Iterable, Sequence

from tidemark.config.problems import did_you_mean


def unknown_settings(unknown: Sequence[str], known: Iterable[str]) -> str:
    """`unknown: ulr (did you mean 'url'?)`"""
    near = did_you_mean(unknown[0], known).strip()
    hint = f" (d{near[1:]})" if near else ""
    return f"unknown: {', '.join(unknown)}{hint}"
