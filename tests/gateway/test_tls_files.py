"""TLS of a gateway: certificates from files, read again when they change."""

import asyncio
import contextlib
import datetime
import socket
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import ares
from ares.gateway.http import gateway_listener
from ares.gateway.http.gateway_limits import GatewayLimits
from ares.gateway.http.gateway_listener import GatewayListener
from ares.gateway.http.tls_files import TlsFiles
from ares.gateway.s3.exchange import HttpResponse
from ares.metrics import GatewayTraffic
from tests.gateway.test_s3_connection import GET, eventually


def write_certificate(directory, name, password=None):
    """Write the files of a certificate that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    lock = (
        serialization.NoEncryption()
        if password is None
        else serialization.BestAvailableEncryption(password)
    )
    form = serialization.PrivateFormat.PKCS8
    pem = serialization.Encoding.PEM
    (directory / "key.pem").write_bytes(key.private_bytes(pem, form, lock))
    (directory / "cert.pem").write_bytes(certificate.public_bytes(pem))


@pytest.fixture
def files(tmp_path):
    write_certificate(tmp_path, "first")
    return TlsFiles(tmp_path / "cert.pem", tmp_path / "key.pem")


@contextlib.asynccontextmanager
async def listening(files, **limits):
    async def serve(exchange):
        scheme = b"secure" if exchange.request.secure else b"plain"
        await exchange.send(HttpResponse(200, [], scheme))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        traffic = GatewayTraffic()
        listener = GatewayListener(serve, GatewayLimits(**limits), traffic, files)
        listener.start([listening])
        try:
            yield listening.getsockname(), listener, traffic
        finally:
            await listener.close()


async def asked(address):
    """Return the name in the certificate, and the answer."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(*address, ssl=trusting)
    writer.write(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    presented = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    answer = await reader.read()
    writer.close()
    subject = x509.load_der_x509_certificate(presented).subject
    return subject.rfc4514_string(), answer


async def test_requests_come_over_tls(files):
    async with listening(files) as (address, _, _):
        name, answer = await asked(address)
    assert (name, answer[-6:]) == ("CN=first", b"secure")


async def test_changed_files_are_read_and_wrong_ones_are_not_taken(files, tmp_path, caplog):
    async with listening(files) as (address, _, _):
        write_certificate(tmp_path, "second")
        files.reload_if_changed()
        assert (await asked(address))[0] == "CN=second"
        (tmp_path / "key.pem").write_bytes(b"no key")
        files.reload_if_changed()
        assert "the earlier certificate stays in use" in caplog.text
        assert (await asked(address))[0] == "CN=second"
        caplog.clear()
        files.reload_if_changed()
        assert caplog.text == ""


def test_files_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(ares.BadInput, match=r"cert\.pem .*No such file"):
        TlsFiles(tmp_path / "cert.pem", tmp_path / "key.pem")
    write_certificate(tmp_path, "locked", password=b"secret")
    with pytest.raises(ares.BadInput, match="password"):
        TlsFiles(tmp_path / "cert.pem", tmp_path / "key.pem")


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.1\r\n\r\n"], ids=["silent", "plain"])
async def test_a_peer_without_tls_holds_no_connection(files, begin, monkeypatch):
    monkeypatch.setattr(gateway_listener, "TLS_HANDSHAKE_S", 0.1)
    async with listening(files) as (address, listener, traffic):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(begin)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        await eventually(lambda: listener.connections == 0)
        assert traffic.refused["Handshake"] == 1
        writer.close()


async def test_a_connection_too_many_takes_the_place_of_the_oldest_handshake(files):
    async with listening(files, connections=2) as (address, listener, _):
        silent = []
        for taken in (1, 2):
            silent.append(await asyncio.open_connection(*address))
            await eventually(lambda taken=taken: listener.connections == taken)
        assert (await asked(address))[1].endswith(b"secure")
        with contextlib.suppress(ConnectionError):
            assert await silent[0][0].read() == b""
        assert listener.connections >= 1
        for _, writer in silent:
            writer.close()
