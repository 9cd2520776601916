"""`python -m lifecycle` is the command `lifecycle`."""

import sys

from lifecycle.commands import main

if __name__ == "__main__":
    sys.exit(main())
