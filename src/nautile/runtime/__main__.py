"""`python -m nautile.runtime`."""

import sys

from nautile.runtime.command import main

sys.exit(main())
