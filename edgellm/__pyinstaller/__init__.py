"""Where PyInstaller finds what it must know of edgellm: the hooks beside this file, through an entry point.

An application that is frozen with edgellm installed needs no option for it; docs/desktop.md says what can be left out.
"""

from __future__ import annotations

from pathlib import Path


def get_hook_dirs() -> list[str]:
    """Return the folder of the hooks; PyInstaller asks through the entry point `pyinstaller40`."""
    return [str(Path(__file__).parent)]
