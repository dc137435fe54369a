"""``python -m rectangular_flows.cli``."""

import sys

from . import main

sys.exit(main())
