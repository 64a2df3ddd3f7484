"""The certificate and key of a gateway, read again when the files change."""

import contextlib
import logging
import os
import ssl
from pathlib import Path

from ares.model.errors import BadInput

CHECK_TLS_S = 10.0
"""Time between two looks at the files."""

_log = logging.getLogger(__name__)


class TlsFiles:
    """The files, and the context made of them last. Raises :class:`ares.BadInput`."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._paths = (certificate, key)
        self._seen = self._stamp()
        self.context = self._load()

    def reload(self) -> None:
        """Read the files again. Unusable new files leave the present context."""
        self._seen = self._stamp()
        try:
            self.context = self._load()
        except BadInput as error:
            _log.error("%s; the earlier certificate stays in use", error)
        else:
            _log.info("the certificate is read again: %s", self._paths[0])

    def reload_if_changed(self) -> None:
        if self._stamp() != self._seen:
            self.reload()

    def _stamp(self) -> list[tuple[int, int, int]]:
        stamps = []
        for path in self._paths:
            with contextlib.suppress(OSError):
                seen = os.stat(path)
                stamps.append((seen.st_mtime_ns, seen.st_size, seen.st_ino))
        return stamps

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        certificate, key = self._paths
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except OSError as error:  # ssl.SSLError is one
            why = f"{error.strerror or error}"
            raise BadInput(f"TLS: {certificate} and {key} cannot be used: {why}") from error
        return context


def _no_password() -> str:
    """Refuse a key with a password, for which OpenSSL would ask on the terminal."""
    raise BadInput("TLS: the key has a password; give a key without one")
