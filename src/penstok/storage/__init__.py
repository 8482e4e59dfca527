"""Files that are not on this machine: find, list and read them in ranges, without copying to disk.

It plans nothing and reads no documents. `inputs` and `readers` use it for URLs, `data` and
`verification` for outputs in object stores (`object_paths`); `output.store` writes to them through
`s3_folder` and `s3_lock`.
"""

from __future__ import annotations

from penstok.storage.base import (
    ObjectInfo,
    ObjectMissingError,
    RetryPolicy,
    changed_error,
    close_connections,
)
from penstok.storage.files import RemoteFile, RemoteStream, open_seekable, open_stream
from penstok.storage.urls import expand_url, get_object_info, is_url

__all__ = [
    "REMOTE_BYTES",
    "ObjectInfo",
    "ObjectMissingError",
    "RemoteFile",
    "RemoteStream",
    "RetryPolicy",
    "changed_error",
    "close_connections",
    "expand_url",
    "get_object_info",
    "is_url",
    "open_seekable",
    "open_stream",
]

# Memory of a client library once it is loaded. botocore takes the most: 25 MiB in the parent, 39 in
# a worker; requests takes 8.
REMOTE_BYTES = 40 << 20
