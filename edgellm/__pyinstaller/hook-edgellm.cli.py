"""What a frozen application needs of edgellm's command line: each command is imported when it is called."""

from PyInstaller.utils.hooks import collect_submodules

hiddenimports = collect_submodules("edgellm.cli")
