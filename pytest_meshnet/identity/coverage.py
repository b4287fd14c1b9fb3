"""Whether layer ranges cover a model: overlaps are legal, a hole or an excess is not."""

from collections.abc import Iterable


def coverage_gap(ranges: Iterable[tuple[int, int]], layer_count: int) -> str | None:
    """Say what is wrong with the coverage of `layer_count` layers, or None when nothing is.

    `ranges` are end-exclusive `(start, end)` in any order; order is a matter of the route, see
    `execution_gap`. Empty, inverted or non-integer ranges are wrong too.
    """
    if not _is_count(layer_count) or layer_count < 1:
        return f"the model has {layer_count!r} layers: expected an integer of at least 1"
    found = list(ranges)
    for start, end in found:
        if not (_is_count(start) and _is_count(end)) or start < 0 or end <= start:
            return f"[{start!r}, {end!r}) is no layer range: expected 0 <= start < end"
        if end > layer_count:
            return f"[{start}, {end}) exceeds the model, which has {layer_count} layers"
    reach = 0
    for start, end in sorted(found):
        if start > reach:
            return f"no Shard holds layers [{reach}, {start})"
        reach = max(reach, end)
    if reach < layer_count:
        return f"no Shard holds layers [{reach}, {layer_count})"
    return None


def execution_gap(ranges: Iterable[tuple[int, int]], layer_count: int) -> str | None:
    """Say why `ranges`, run in this order, do not execute every layer in order; None when they do.

    A Shard may start before the layer it has to run next (the wire's effective start), never after.
    """
    found = list(ranges)
    gap = coverage_gap(found, layer_count)
    if gap is not None:
        return gap
    reach = 0
    for start, end in found:
        if start > reach:
            return f"[{start}, {end}) comes before layer {reach} has run: order the route by layers"
        reach = max(reach, end)
    return None


def idle_ranges(ranges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the positions of ranges that add no layer to those before them."""
    reach, idle = 0, []
    for position, (_, end) in enumerate(ranges):
        if end <= reach:
            idle.append(position)
        reach = max(reach, end)
    return idle


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
