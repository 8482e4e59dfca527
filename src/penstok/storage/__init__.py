"""Files that are not on this machine: listed, looked at, read in ranges; never copied to disk.

It plans nothing and reads no documents. `sources` asks it for names and open files where an input
is a URL, `object_paths` where an output is one. Outputs in object stores are written through
`s3_folder` and `s3_lock`.
"""

from __future__ import annotations

from penstok.storage.base import MissingError, RemoteFacts, changed, close_connections
from penstok.storage.files import RemoteFile
from penstok.storage.listing import expand_url, is_url, list_folder
from penstok.storage.retries import Retries
from penstok.storage.streams import RemoteStream, open_seekable, open_stream
from penstok.storage.transports import look_at_url

__all__ = [
    "REMOTE_BYTES",
    "MissingError",
    "RemoteFacts",
    "RemoteFile",
    "RemoteStream",
    "Retries",
    "changed",
    "close_connections",
    "expand_url",
    "is_url",
    "list_folder",
    "look_at_url",
    "open_seekable",
    "open_stream",
]

# What a client takes once it is loaded. botocore takes the most: 25 MiB in the parent, 39 in a
# worker; requests takes 8.
REMOTE_BYTES = 40 << 20
