"""The names of an operation's phases in traces, given to the functions of the protocol.

The names come from the papers' figures (ARES II, Figs. 2-16). A renamed function keeps its phase in
traces. An operation without a recording runs no code for phases.
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
GET_DATA = "GetData"
PUT_DATA = "PutData"

ROUND = "CommunicationLatency"
SETTLED = "FindTagInKLists"
"""The judgement of a round's replies."""

FIND_TAG = "findTag_in_k_lists"
MAX_TAG = "findMaxTagStar"
MAX_VALUE = "findMaxTagVal_in_k_lists"
"""The steps of get-data as published (Alg. 3:13, 3:14 and 3:16-20), with the figures' names."""

LOAD = "LoadCoding"
ENCODE = "EncodeLatency"
DECODE = "DecodeLatency"
JUDGED = frozenset({FIND_TAG, MAX_TAG, MAX_VALUE, DECODE})
"""Computations on the replies of a round; they belong to the part that asked."""

CONSENSUS = "Consensus"
PAUSE = "Pause"
QUEUE = "Queue"
"""The wait for another operation on the same object."""

CHAIN = "Chain"
"""The wait for the servers of a log's chain."""

PHASES: dict[CodeType, str] = {}
"""Names of phases by the code of the functions whose generators run them."""

Function = TypeVar("Function", bound=Callable[..., Any])


def phase(name: str) -> Callable[[Function], Function]:
    """Return a decorator that names the phase of a function's generators."""

    def give_name(function: Function) -> Function:
        PHASES[cast(FunctionType, function).__code__] = name
        return function

    return give_name
