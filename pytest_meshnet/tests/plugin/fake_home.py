"""A pytest plugin that puts a test's own suite and target in place of the real ones."""

import os
import sys
from pathlib import Path

from pytest_meshnet import layout
from pytest_meshnet.tests.plugin import fake_target

HOME = Path(os.environ["MESHNET_FAKE_HOME"])

layout.folder = HOME.joinpath
sys.modules["pytest_meshnet.suite_fixtures"] = fake_target
