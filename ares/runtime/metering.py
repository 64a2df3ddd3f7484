"""Counting what comes to a listener and leaves it. By the batch wherever that will do: a clock is read twice for each, whatever it holds."""

from collections.abc import Sequence

from ares.messages import AnyMessage
from ares.runtime.ports import Handle, Sender
from ares.server.metrics import Traffic


def counted(handle: Handle, traffic: Traffic) -> Handle:
    """``handle``, with the requests it is given and the replies it gives at once counted in ``traffic``."""

    def counting(sender: Sender, messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
        traffic.count_requests(messages)
        replies = handle(sender, messages)
        traffic.count_replies(replies)
        return replies

    return counting
