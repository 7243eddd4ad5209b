"""`python -m elasticd`: the command line, where no `elasticd` is on PATH."""

import sys

from elasticd.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
