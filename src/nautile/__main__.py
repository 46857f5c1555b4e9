"""`python -m nautile`: the command line."""

import sys

from nautile.interrupts import interruptible

with interruptible() as seen:
    try:
        from nautile.cli import main

        status = main()
    except (Exception, KeyboardInterrupt):
        if not seen:
            raise
        status = 130  # interrupted among the imports
sys.exit(status)
