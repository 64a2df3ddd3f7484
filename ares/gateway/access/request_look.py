"""The look of a request at the tail of the buckets' log, which serves the whole request."""

from ares.client.buckets.bucket_index import BucketIndex
from ares.client.buckets.buckets import Buckets


class RequestLook:
    """The index for one request, at a tail that is asked for once.

    Make it after the request came. One look is enough for the judgement of the key and for the read
    after the judgement. The tail is asked for after the begin of the request: every change answered
    before the begin is below the tail. The index of a life only goes on: every part of the request
    reads the state at a position from the tail on. This was the state at a moment between begin and
    answer (linearizability). Another life of the index may begin at an earlier position, and gets
    another look.

    A look that began before the request proves nothing. :meth:`BucketIndex.verified` shares looks
    between requests, and only before the look begins.
    """

    def __init__(self, buckets: Buckets, timeout_s: float) -> None:
        self._buckets = buckets
        self._timeout_s = timeout_s
        self._looked: BucketIndex | None = None

    async def verify(self, index: BucketIndex) -> None:
        """Wait until a life of the index is at the tail.

        Raises :class:`ares.SessionEnded`, and :class:`ares.Unavailable` if the log tells no tail.
        """
        if index is not self._looked:
            await index.verified(self._timeout_s)
            self._looked = index
        index.check_live()

    async def verified(self) -> BucketIndex:
        """Return the index at the tail, of a live session. Raises the errors of a look."""

        async def verify(index: BucketIndex, _: bool) -> BucketIndex:
            await self.verify(index)
            return index

        return await self._buckets.in_session(verify, self._timeout_s)
