"""``python -m rectangular_flows``: the command line, also for several processes by ``torchrun -m rectangular_flows``."""

import sys

from .cli import main

sys.exit(main())
