"""The compiled kernel (`penstok/kernel/`); load it with `penstok.kernel.load_kernel`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

def available_isas() -> list[str]: ...
def built_isas() -> list[str]: ...
def isa() -> str: ...
def extract_csv_records(
    csv: NDArray[np.uint8],
    stop: int,
    delimiter: int,
    column: int,
    num_columns: int,
    out: NDArray[np.uint8],
) -> tuple[
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.uint8],
    int,
    int,
]: ...
def extract_json_lines(
    json: NDArray[np.uint8], stop: int, key: bytes, takes_any: bool, out: NDArray[np.uint8]
) -> tuple[
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.uint8],
    int,
    int,
    int,
]: ...
def copy_plain_texts(
    data: NDArray[np.uint8],
    start: int,
    out: NDArray[np.uint8],
    to: int,
    num_open: int,
    max_bytes: int,
    ends: NDArray[np.int64],
) -> tuple[int, int, int, int]: ...
def decode_runs(
    data: NDArray[np.uint8], bit_width: int, limit: int, out: NDArray[np.uint32]
) -> None: ...
def decompress_snappy(
    data: NDArray[np.uint8], start: int, out: NDArray[np.uint8], to: int, num_open: int
) -> tuple[int, int, int]: ...
def find_all(
    text: NDArray[np.uint8], start: int, end: int, wanted: bytes, out: NDArray[np.int64]
) -> int: ...
def gather_texts(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    indexes: NDArray[np.uint32],
    out: NDArray[np.uint8],
    ends: NDArray[np.int64],
) -> None: ...
def hash_documents(
    text: NDArray[np.uint8],
    starts: NDArray[np.int64],
    heads: NDArray[np.int64],
    seed: int,
    out: NDArray[np.uint64],
) -> None: ...
def last_merges(
    ranks: dict[bytes, int],
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]: ...
def read_parquet_chunks(
    footer: NDArray[np.uint8], column: int
) -> list[tuple[int, int, int, int, int, int]]: ...
def read_parquet_page(
    data: NDArray[np.uint8],
) -> tuple[int, int, int, int, int | None, int, int, int, int, int, int, bool]: ...
def read_parquet_schema(
    footer: NDArray[np.uint8],
) -> list[tuple[bytes, int, int, int, int, int]]: ...
def reserve_disk_space(file: int, start: int, num_bytes: int) -> bool: ...
def room_for(text_bytes: int, num_documents: int) -> int: ...
def scan_csv(csv: NDArray[np.uint8], stop: int, delimiter: int, state: int) -> tuple[int, int]: ...
def surely_nfc(
    text: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None: ...

class Encoder:
    def __init__(
        self,
        ranks: dict[bytes, int],
        eot_id: int,
        eot: str = "append",
        table_bytes: int = ...,
        isa: str = "",
        pattern: str = "gpt2",
        bos_id: int | None = None,
    ) -> None: ...
    @property
    def isa(self) -> str: ...
    @property
    def id_bytes(self) -> int: ...
    def is_free_junction(self, left: int, right: int) -> bool: ...
    def encode(
        self,
        text: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        begins: NDArray[np.bool_],
        closes: NDArray[np.bool_],
        out: NDArray[np.unsignedinteger[Any]],
    ) -> int: ...
