"""`python -m elasticd.cli`: `elasticd run` starts the agents of this machine with this module."""

import sys

from elasticd.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
