"""A service of S3: endpoints and a key, clients of boto3, and signed requests by hand."""

import dataclasses
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import pytest

REGION = "us-east-1"


@dataclasses.dataclass(frozen=True)
class Reply:
    """An answer of HTTP; the names of ``headers`` are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """The word in the document of an error."""
        return self.body.decode().partition("<Code>")[2].partition("</Code>")[0]


@dataclasses.dataclass(frozen=True)
class S3Service:
    """``endpoints``: URLs of processes with the same buckets. The key is an administrator's."""

    endpoints: tuple[str, ...]
    access_key: str
    secret_key: str

    @property
    def address(self) -> str:
        """The first endpoint without the scheme: HOST:PORT."""
        return self.endpoints[0].removeprefix("http://")

    @property
    def environment(self) -> dict[str, str]:
        """The variables of AWS's programs."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": self.endpoints[0],
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def boto(self, endpoint: int = 0, attempts: int = 1, **more: Any) -> Any:
        """Return a client of boto3 with path style; ``more`` are options of Config."""
        import boto3
        from botocore.config import Config

        more = {"s3": {"addressing_style": "path"}} | more
        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoints[endpoint],
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=REGION,
            config=Config(retries={"total_max_attempts": attempts}, read_timeout=60, **more),
        )

    def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        payload: str | None = None,
        endpoint: int = 0,
    ) -> Reply:
        """Send a request signed in its header. ``path`` is encoded, and may have a query.

        ``payload``: the value of x-amz-content-sha256, the body's digest by default.
        """
        signed = self.signed(method, path, headers, body, payload, endpoint)
        return self.send_unsigned(method, path, signed, body, endpoint)

    def signed(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        payload: str | None = None,
        endpoint: int = 0,
    ) -> dict[str, str]:
        """Return the headers of a request, with the signature."""
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        class RequestSigner(S3SigV4Auth):  # type: ignore[misc]
            def payload(self, request: Any) -> str:
                return payload or super().payload(request)

        url = self.endpoints[endpoint] + path
        request = AWSRequest(method, url, dict(headers or {}), body)
        key = Credentials(self.access_key, self.secret_key)
        RequestSigner(key, "s3", REGION).add_auth(request)
        return dict(request.headers.items())

    def send_unsigned(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        endpoint: int = 0,
    ) -> Reply:
        """Send a request as it is."""
        import urllib3

        with urllib3.PoolManager() as pool:
            answer = pool.request(
                method,
                self.endpoints[endpoint] + path,
                headers=dict(headers or {}),
                body=body,
                redirect=False,
                retries=False,
                timeout=60,
                preload_content=True,
                decode_content=False,
            )
        found = {name.lower(): value for name, value in answer.headers.items()}
        return Reply(answer.status, found, answer.data)


def refused(call: Callable[..., Any], **arguments: Any) -> tuple[int, str]:
    """Return the status and the code of a failing call of boto3."""
    from botocore.exceptions import ClientError

    with pytest.raises(ClientError) as raised:
        call(**arguments)
    answer = raised.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]


def new_name(kind: str = "b") -> str:
    """Return a random name, new for each test."""
    return f"{kind}-{secrets.token_hex(6)}"
