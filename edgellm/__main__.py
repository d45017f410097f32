"""`python -m edgellm` is the `edgellm` command."""

import sys

from .cli import main

sys.exit(main())
