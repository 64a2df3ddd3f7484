"""What every message has. Its kinds: ares/model/messages.py, and for the consensus service ares/model/consensus_messages.py."""

from msgspec import Struct

from ares.model.identity import CallId


class Message(Struct, frozen=True, array_like=True, gc=False, tag=True):
    """Base of all. ``call`` is chosen by the client and unique in its session; a reply repeats it."""

    call: CallId
