"""Keeping glibc's heap between messages of megabytes.

glibc serves an allocation of 128 KiB or more by mmap, and returns the top of its heap to the kernel
whenever that exceeds a trim threshold. A codec that allocates and frees 1.5 MB a dozen times a
message then touches fresh, zeroed pages every time: most of its time is page faults.
"""

from __future__ import annotations

import ctypes

# From <malloc.h>. The two work only together: either alone leaves more than half of the faults.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3

# Twice the largest message stays on the heap, and room for a few of them stays with the process.
_MMAP_BYTES = 8 * 1024 * 1024
_TRIM_BYTES = 64 * 1024 * 1024


def keep_heap() -> bool:
    """Tell glibc to keep up to 64 MiB of free heap. Returns whether it did.

    For programs that own their process (a server, a certification), called once at their start:
    the whole process is affected, so a library or a plugin must not do it on import. Elsewhere
    than on glibc nothing happens.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    return bool(
        library.mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        and library.mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
    )
