"""Lets ``python -m pinfold.cmd.manage`` work."""

import sys

from pinfold.cmd.manage.main import main

sys.exit(main())
