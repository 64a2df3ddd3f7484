"""The ways to cut files, by name."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from ares.compiled import rabin_search
from ares.fragment.divide import FASTCDC, RABIN, Cuts, fastcdc_cuts, rabin_cuts

CUTS: Mapping[str, Cuts] = MappingProxyType(
    {FASTCDC: fastcdc_cuts, RABIN: partial(rabin_cuts, rabin_search())}
)
