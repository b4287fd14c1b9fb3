"""`python -m pytest_meshnet` is the `pytest-meshnet` command."""

from pytest_meshnet.cli import main

if __name__ == "__main__":
    main()
