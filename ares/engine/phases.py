"""The names of an operation's phases in traces, given to the functions of the protocol.

The names are the names of the papers' figures (ARES II, Figs. 2-16). A function keeps its name in
traces when it is renamed, and an operation without a recording pays nothing for it.
"""

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast

READ_OBJECT = "StartReadRequest-MEMORY"
WRITE_OBJECT = "StartWriteRequest-MEMORY"
RECONFIGURE = "StartReconRequest-MEMORY"
PHASE_1 = "Phase1"
PHASE_2 = "Phase2"
READ_CONFIG = "ReadConfig"
PUT_DATA = "PutData"

ROUND = "CommunicationLatency"
SETTLED = "FindTagInKLists"
"""The judgement of a round's replies."""

LOAD = "LoadCoding"
ENCODE = "EncodeLatency"
DECODE = "DecodeLatency"
CONSENSUS = "Consensus"
PAUSE = "Pause"
QUEUE = "Queue"
"""The wait for another operation on the same object."""

CHAIN = "Chain"
"""The wait for the servers of a log's chain."""

PHASES: dict[CodeType, str] = {}
"""The name of the phase that a function's generators are, by the function's code."""

Function = TypeVar("Function", bound=Callable[..., Any])


def phase(name: str) -> Callable[[Function], Function]:
    """Return a decorator that gives a function's generators a name in traces."""

    def give_name(function: Function) -> Function:
        PHASES[cast(FunctionType, function).__code__] = name
        return function

    return give_name
