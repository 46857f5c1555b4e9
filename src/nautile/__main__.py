"""`python -m nautile`: the command line."""

import sys

from nautile.cli import main

sys.exit(main())
