"""A runtime without a GPU: it notes in a folder on which device it would compute.

`simulated_runtime.py FOLDER HOW` prints "ready" and runs until its input ends. HOW is `honest`
(the device of its environment), a UUID (that device, whatever the environment says), or `hidden`
(no driver ever lists it).
"""

import os
import sys
from pathlib import Path


def main(folder: str, how: str) -> None:
    device = os.environ["CUDA_VISIBLE_DEVICES"] if how == "honest" else how
    place = Path(folder) / str(os.getpid())
    if how != "hidden":
        place.parent.mkdir(exist_ok=True)
        place.write_text("\n".join(device.split(",")))
    print("ready", flush=True)  # noqa: T201
    sys.stdin.read()
    place.unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
