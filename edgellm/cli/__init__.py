"""The command line. Next hop: `dispatch.py`, then the file named after the command.

Nothing else may live here: importing `list.py` puts a module named `list` into this namespace, over the built-in.
"""

from .dispatch import main as main
