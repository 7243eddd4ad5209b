"""An agent may have all the descriptors that the machine allows; workers what they always had."""

import subprocess
import sys

CODE = """
import resource, subprocess, sys
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
from elasticd_agent.loop.open_file_limit import give_first_limit, raise_limit
raise_limit()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
asks = "import resource; input(); print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
child = subprocess.Popen([sys.executable, "-c", asks], stdin=subprocess.PIPE)
give_first_limit(child.pid)
child.communicate(b"go")
"""


def test_the_limit_is_raised_and_not_for_workers() -> None:
    """Programs that use `select` break on high numbers."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "256"
