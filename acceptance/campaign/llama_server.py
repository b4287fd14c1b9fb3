"""A real llama.cpp server with a small model, until standard input ends. Run as a script.

`python -m acceptance.campaign.llama_server MODEL` prints the origin of the server on one line. A
prompt of more than BATCH tokens is computed in several chunks; four requests run side by side.
"""

from __future__ import annotations

import sys

BATCH = 64
PARALLEL = 4
CONTEXT = 4096


def main() -> int:
    """Serve until nobody holds the other end of standard input."""
    import xllamacpp

    asked = xllamacpp.CommonParams()
    asked.model.path = sys.argv[1]
    asked.n_ctx, asked.n_parallel = CONTEXT, PARALLEL
    asked.n_batch = asked.n_ubatch = BATCH
    asked.n_gpu_layers, asked.port = 0, 0
    # One thread: several would spin against one another where a core is shared.
    asked.cpuparams.n_threads = asked.cpuparams_batch.n_threads = 1
    asked.warmup = False
    server = xllamacpp.Server(asked)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
