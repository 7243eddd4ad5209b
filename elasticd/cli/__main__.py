"""`python -m elasticd.cli`: how `elasticd run` starts the agents of this machine."""

import sys

from elasticd.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
