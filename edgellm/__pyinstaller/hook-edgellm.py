"""What a frozen application needs of edgellm: its public names are loaded when first used, where PyInstaller cannot look.

The command line is left out, with what it draws in; hook-edgellm.cli.py is asked where an application imports that.
"""

from PyInstaller.utils.hooks import collect_submodules


def _is_library(name: str) -> bool:
    return not name.startswith(("edgellm.cli", "edgellm.server", "edgellm.__"))


hiddenimports = collect_submodules("edgellm", filter=_is_library)
