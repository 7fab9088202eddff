"""`python -m reference_server`."""

import sys

from reference_server.cli import main

sys.exit(main())
