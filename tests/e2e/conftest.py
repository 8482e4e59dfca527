"""What several tests of the real program share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from remote_servers import s3_server


@pytest.fixture(scope="session")
def s3_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an S3 on this machine; tests make buckets of their own."""
    pytest.importorskip("botocore")
    with s3_server(tmp_path_factory.mktemp("s3")) as port:
        yield port
