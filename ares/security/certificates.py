"""Certificates of decisions: members sign them, servers accept no successor without a certificate.

See docs/protocol.md, Rules. Readers and writers must be able to spread successors (rule R3) and
must not be able to invent a successor. A certificate states that a configuration, by its id, was
decided for a place in a cluster. The certificate does not mention finalization, which is left to
clients with the right to reconfigure (ares/security/roles.py). c0 needs no certificate: its id is
the cluster's name.
"""

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec.structs import replace

from ares.model.configuration import Configuration
from ares.model.identity import ConfigurationId
from ares.security.keys import SigningKey

VERIFIED_KEPT = 4096
"""Certificates remembered as valid; the same few come with every request of a reconfigurer."""


def _statement(configuration: Configuration) -> bytes:
    return msgspec.msgpack.encode(
        (
            b"ares decision",
            configuration.cluster_id,
            configuration.domain,
            configuration.index,
            configuration.id,
        ),
    )


class Signer:
    """The signer for the members of the consensus service.

    The caller gives decided configurations only.
    """

    def __init__(self, key: SigningKey) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(key.secret)

    def certified(self, configuration: Configuration) -> Configuration:
        """Return ``configuration``, which has a place, with its certificate."""
        return replace(configuration, certificate=self._key.sign(_statement(configuration)))


class Verifier:
    """The check of a configuration's decision for its place in the cluster of ``initial`` (c0).

    ``public_key``: hex; empty: no configuration except c0 was ever decided.
    """

    def __init__(self, public_key: str, initial: Configuration) -> None:
        self._key = (
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)) if public_key else None
        )
        self._initial = initial.id
        self._cluster = initial.cluster_id
        self._verified: dict[ConfigurationId, bytes] = {}

    def __call__(self, configuration: Configuration) -> bool:
        if configuration.index < 0 or configuration.cluster_id != self._cluster:
            return False
        id, certificate = configuration.id, configuration.certificate
        if id == self._initial:
            return True
        if self._key is None or not certificate:
            return False
        if self._verified.get(id) == certificate:
            return True
        try:
            self._key.verify(certificate, _statement(configuration))
        except InvalidSignature:
            return False
        if len(self._verified) >= VERIFIED_KEPT:
            self._verified.pop(next(iter(self._verified)))
        self._verified[id] = certificate
        return True
