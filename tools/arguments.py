"""Checks of options that the tools share."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace


def require_at_least(parser: ArgumentParser, args: Namespace, **lowest: int) -> None:
    """End the program with a line that names an option below its lowest value, if there is one."""
    for name, low in lowest.items():
        if getattr(args, name) < low:
            parser.error(f"--{name.replace('_', '-')} must be at least {low}, not {getattr(args, name)}")
