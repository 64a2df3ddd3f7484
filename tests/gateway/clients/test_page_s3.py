"""The commands of docs/s3.md run as printed; lines of `aws` are left out where it is absent."""

import re
import shutil
from pathlib import Path

import pytest

from tests.ports import free_addresses
from tests.process.test_pages import CHECKOUT, blocks, run

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_the_first_bucket(tmp_path: Path) -> None:
    pytest.importorskip("boto3", reason="no boto3 here: pip install boto3")
    (address,) = free_addresses(1)
    port = address.rpartition(":")[2]
    script = "\n".join(blocks(CHECKOUT / "docs/s3.md"))
    script = script.replace("--gateway\n", f"--gateway --gateway-port {port}\n")
    script = script.replace("127.0.0.1:9000", address)
    if shutil.which("aws") is None:
        script = re.sub(r"^aws .*\n", "", script, flags=re.MULTILINE)
    said = run(script, tmp_path)
    assert said.endswith("PreconditionFailed\nb'2'\n")
