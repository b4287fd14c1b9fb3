"""`python -m acceptance.speed`, which is `tox run -e bench`."""

import sys

from .bench import main

sys.exit(main())
