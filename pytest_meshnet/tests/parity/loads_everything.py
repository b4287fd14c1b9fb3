"""A reference worker that keeps every layer of SmolLM2 whatever its range, to be found by that.

`python -m pytest_meshnet.tests.parity.loads_everything serve ...` takes what the command takes.
"""

from dataclasses import replace

from pytest_meshnet.cli import main
from pytest_meshnet.reference.models import BUILT_IN
from pytest_meshnet.reference.torch_models import smollm2
from pytest_meshnet.reference.torch_models.shard import TorchShard


def everything(start, end, boundary_dtype):
    """A Shard of layers [start, end) that holds all others too."""
    layers = BUILT_IN[smollm2.NAME].layers
    served, whole = _load(0, layers, boundary_dtype)
    head = whole.parts.head if end == layers else None
    served = replace(served, start_layer=start, end_layer=end)
    return served, TorchShard(replace(whole.parts, head=head), boundary_dtype)


_load, smollm2.load_shard = smollm2.load_shard, everything

if __name__ == "__main__":
    main()
