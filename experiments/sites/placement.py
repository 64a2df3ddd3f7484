"""Where the copies of an object are, in stores that place them by rules."""

from collections.abc import Sequence


def holders(sites: Sequence[str], site: str, copies: int) -> list[str]:
    """The object's own site first, then those that follow it in the list, each with one copy; all sites if there are fewer."""
    first = sites.index(site)
    return [sites[(first + further) % len(sites)] for further in range(min(copies, len(sites)))]
