"""A cluster with two gateways, shared by the tests of this package, and clients for them.

The tests also run against another service that speaks S3, which judges the tests themselves:

    ARES_TEST_S3=http://127.0.0.1:5000 ARES_TEST_S3_KEY=ID:SECRET pytest tests/gateway/clients
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .gateway_processes import running_gateways
from .s3_service import S3Service, new_name


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Service]:
    """Yield two gateways of a new cluster, or the service named by the environment."""
    pytest.importorskip("boto3", reason="no boto3 here: pip install boto3")
    if endpoints := os.environ.get("ARES_TEST_S3"):
        access_key, _, secret_key = os.environ["ARES_TEST_S3_KEY"].partition(":")
        yield S3Service(tuple(endpoints.split(",")), access_key, secret_key)
    else:
        yield from running_gateways(tmp_path_factory.mktemp("gateways"), 2)


@pytest.fixture(scope="package")
def s3(service: S3Service) -> Any:
    """Return a client of boto3 for the first gateway, without retries."""
    return service.boto()


@pytest.fixture
def new_bucket(s3: Any) -> Callable[[], str]:
    """Return a function that makes a bucket and returns the bucket's name."""

    def make() -> str:
        name = new_name()
        s3.create_bucket(Bucket=name)
        return name

    return make


@pytest.fixture
def bucket(new_bucket: Callable[[], str]) -> str:
    """Return a new bucket."""
    return new_bucket()
