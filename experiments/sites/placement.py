"""Sites of the copies of an object, in stores that place copies by rules."""

from collections.abc import Sequence


def holders(sites: Sequence[str], site: str, copies: int) -> list[str]:
    """Return the object's own site and the next sites in the list, each with a copy.

    With too few sites, all sites are returned.
    """
    first = sites.index(site)
    return [sites[(first + further) % len(sites)] for further in range(min(copies, len(sites)))]
