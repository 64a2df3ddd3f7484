"""The certified decisions of a consensus member: clients get the proof that servers ask for.

The replicated table holds decisions as proposed, without certificates: every member can make the
certificate again, and makes an equal certificate.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from ares.consensus.port import Consensus
from ares.model.configuration import Configuration
from ares.model.errors import ConfigurationRefused
from ares.model.identity import DEFAULT_DOMAIN, ClientId, DomainName, ServerId
from ares.model.messages import ConsensusDescription, Decided
from ares.security.certificates import Signer, Verifier


class CertifiedConsensus:
    """The Consensus port over ``consensus``, for the cluster whose c0 is ``initial``.

    Refuses proposals for other clusters, and for c0's own place: once signed, a second c0 would be
    believed.
    """

    def __init__(
        self, consensus: Consensus, initial: Configuration, signer: Signer, verifier: Verifier
    ) -> None:
        self._consensus = consensus
        self._cluster = initial.cluster_id
        self._signer = signer
        self._verifier = verifier

    async def propose(
        self, configuration: Configuration, proposer: ClientId, timeout_s: float
    ) -> Decided:
        """Propose as in the port. Raises :class:`ConfigurationRefused`, too."""
        self._require_ours(configuration)
        if configuration.index > 0:
            await self._require_same_kind(configuration, timeout_s)
        decided = await self._consensus.propose(
            replace(configuration, certificate=b""), proposer, timeout_s
        )
        self._require_ours(decided.configuration)
        return replace(decided, configuration=self._signer.certified(decided.configuration))

    async def hint(self, domain: DomainName, timeout_s: float) -> Configuration | None:
        """Return the hint as in the port; None for a hint without a certificate, too."""
        hint = await self._consensus.hint(domain, timeout_s)
        return hint if hint is not None and self._verifier(hint) else None

    async def tell_finalized(self, configuration: Configuration, timeout_s: float) -> bool:
        """Keep a hint as in the port.

        Raises :class:`ConfigurationRefused`, too, for a configuration without a certificate.
        """
        if not self._verifier(configuration):
            raise ConfigurationRefused(
                "only a configuration decided here, with the certificate of its decision, can be "
                "finalized; nothing was kept"
            )
        return await self._consensus.tell_finalized(configuration, timeout_s)

    @property
    def troubles(self) -> Mapping[ServerId, str]:
        return self._consensus.troubles

    async def describe(self, timeout_s: float) -> list[ConsensusDescription]:
        return await self._consensus.describe(timeout_s)

    async def close(self) -> None:
        await self._consensus.close()

    def _require_ours(self, configuration: Configuration) -> None:
        """Raise :class:`ConfigurationRefused` for a foreign configuration or a fixed place.

        A foreign configuration belongs to another cluster. The check runs at the proposal and
        again, at little cost, before the signature: a journal may hold entries of earlier releases,
        or of members of another cluster.
        """
        if configuration.index < 0 or configuration.cluster != self._cluster:
            raise ConfigurationRefused(
                "that configuration is of another cluster, and is not decided here: is this the "
                "right cluster file?"
            )
        if configuration.domain == DEFAULT_DOMAIN and configuration.index == 0:
            raise ConfigurationRefused(
                "where the domain 'default' begins stands in the cluster file, and is not decided"
            )
        if configuration.dap == "chain" and configuration.domain == DEFAULT_DOMAIN:
            raise ConfigurationRefused(
                "the domain 'default' holds objects, and no chain is decided for it; nothing was "
                "changed"
            )

    async def _require_same_kind(self, configuration: Configuration, timeout_s: float) -> None:
        """Keep a log a log, and a domain of objects a domain of objects.

        Any other decision would leave the domain without servers. The hint shows the kind: a log
        has a hint from its creation on, and again before each seal.
        """
        last = await self._consensus.hint(configuration.domain, timeout_s)
        is_log = last is not None and last.dap == "chain"
        if is_log != (configuration.dap == "chain"):
            kind = (
                "is a log, and only chains follow its chains"
                if is_log
                else "is not known as a log, and no chain is decided for it"
            )
            raise ConfigurationRefused(
                f"domain {configuration.domain!r} {kind}; nothing was changed"
            )
