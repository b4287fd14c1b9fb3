"""Runs a command that dies with the process that started it.

`python -m pytest_meshnet.runtime.guard PARENT COMMAND [ARGUMENT...]` asks the kernel for SIGKILL
on the death of its parent and becomes the command. So a runtime under test, and the pytest of a
certificate run, outlive neither SIGKILL nor a crash of what started them. Elsewhere than on Linux
the command simply runs.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_USAGE = 2


def main(arguments: list[str]) -> int:
    """Become the command. Returns only when that is impossible."""
    parent, command = int(arguments[0]), arguments[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return _USAGE  # The parent was gone before it could be watched.
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
