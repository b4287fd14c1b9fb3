"""Where the suites, the pinned data and the golden vectors lie, in a checkout and in a wheel."""

from pathlib import Path
from typing import Literal

FolderName = Literal["conformance", "acceptance", "fixtures", "goldens"]

_PACKAGE = Path(__file__).resolve().parent


def folder(name: FolderName) -> Path:
    """Return the folder `name`: inside the package when installed, beside it in a checkout.

    Raises FileNotFoundError when neither exists, which means a damaged installation.
    """
    for parent in (_PACKAGE, _PACKAGE.parent):
        candidate = parent / name
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(
        f"the folder {name!r} is neither in {_PACKAGE} nor beside it: reinstall pytest-meshnet"
    )


def part(name: str) -> Path:
    """Return the folder of a suite, or of a part of it: "conformance", "acceptance/parity".

    Raises FileNotFoundError as `folder` does.
    """
    suite, _, rest = name.partition("/")
    return (folder("conformance").parent / suite).joinpath(rest)
