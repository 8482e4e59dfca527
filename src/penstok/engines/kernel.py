"""The kernel engine: Penstok's own C++ encoder for byte-level BPE, and for BPE of characters.

It refuses tokenizers for which the kernel is not proved and machines on which it does not give the
stored ids, with a `KernelUnavailableError` that makes `auto` use another engine. The encoder itself
is in `penstok/kernel/`; `docs/concepts/kernel.md` explains it.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from penstok.engines.base import SplitIds, cannot_encode, most_tokens
from penstok.engines.tiktoken import TiktokenEngine
from penstok.errors import EngineError, UsageError
from penstok.kernel import KernelUnavailableError, load_kernel
from penstok.tokenizers import ByteLevel
from penstok.tokenizers.character_bpe import PART_OF_CHARACTER
from penstok.tokenizers.cuts import keep_junctions
from penstok.tokenizers.vocabulary import GPT2_PATTERN, find_pattern
from penstok.types import Block, Struct, field

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

    from penstok.engines.base import Engine
    from penstok.tokenizers import Tokenizer
    from penstok.tokenizers.character_bpe import CharacterBpe
    from penstok.types import EotPosition

__all__ = ["ISA_VARIABLE", "KernelEngine", "available_isas"]

ISA_VARIABLE = "PENSTOK_KERNEL_ISA"
DEFAULT_TABLE_BYTES = 16 << 20
# A short text does not fill the tables: clearing and filling them takes longer than encoding it.
_SMALL_TABLE_BYTES = 1 << 16
_SHORT_BYTES = 1 << 18

# The tokenizer and encoder of the last successful `find_obstacle`, until they are used.
_proved: list[tuple[Tokenizer, Any]] = []


def available_isas() -> list[str]:
    """Return the instruction sets that the kernel can use on this machine, the fastest first."""
    names: list[str] = load_kernel().available_isas()
    return names


class KernelEngine:
    """Encodes with the kernel, on one core, in a fixed amount of memory (about 30 MB).

    Without `out`, `encode` returns a view of a buffer that the next call overwrites. One engine
    serves one thread at a time; there may be any number of engines.
    """

    name: ClassVar[str] = "kernel"

    def __init__(
        self,
        tokenizer: Tokenizer,
        eot: EotPosition,
        *,
        isa: str | None = None,
        table_bytes: int = DEFAULT_TABLE_BYTES,
    ) -> None:
        """Build the tables of a tokenizer (about 0.1 s) and check them against stored ids.

        Args:
            tokenizer: Must be byte-level, with a pattern that `find_pattern` knows, or a
                `CharacterBpe`.
            eot: Where end-of-text ids go.
            isa: `avx512`, `avx2`, `neon` or `portable`; default: `PENSTOK_KERNEL_ISA`, otherwise
                the fastest of this machine.
            table_bytes: Size of the piece table; less until there is more than a short text. More
                than 16 MiB does not help.
        """
        tables = _Tables.from_tokenizer(tokenizer)
        kernel = load_kernel()
        chosen = _check_isa(kernel, os.environ.get(ISA_VARIABLE, "") if isa is None else isa)
        self._eot, self._table_bytes, self._encoded_bytes = eot, table_bytes, 0
        self._tokenizer, self._unknown = tokenizer, tables.unknown
        self._library: Engine | None = None
        self._is_small = table_bytes > _SMALL_TABLE_BYTES
        size = _SMALL_TABLE_BYTES if self._is_small else table_bytes
        proved = _take_proved(tokenizer, chosen)
        try:
            if proved is None:
                self._encoder = kernel.Encoder(
                    tables.ranks,
                    tables.eot_id,
                    eot,
                    size,
                    chosen,
                    tables.pattern,
                    tables.bos_id,
                    tables.output_ids,
                    tables.adds_space,
                )
            else:
                self._encoder = proved
                self._encoder.restart(eot, size)
        except ValueError as error:
            raise KernelUnavailableError(
                f"the kernel cannot encode with `{tokenizer.name}` exactly: {error}",
                where="--engine",
                next_step="pass `--engine auto`",
            ) from error
        is_narrow = tables.find_max_id(self._encoder) <= 0xFFFF
        self._dtype = np.dtype(np.uint16 if is_narrow else np.uint32)
        self._out = np.empty(0, np.dtype(f"u{self._encoder.id_bytes}"))
        _check_stored_ids(self, tables)
        has_ascii = bool(tables.output_ids)
        keep_junctions(tables.ranks, self._encoder.is_free_junction, has_ascii=has_ascii)

    @staticmethod
    def find_obstacle(tokenizer: Tokenizer) -> UsageError | None:
        """Return why the kernel cannot be used, which includes a failed self-test.

        The encoder that was tried is kept for the engine that is made next. Workers that are forks
        of this process find it too, and share its tables.
        """
        model = tokenizer.model
        if not isinstance(model, ByteLevel) and model.bpe is None:
            return cannot_encode("kernel", tokenizer, model.why)
        try:
            engine = KernelEngine(tokenizer, "append")
        except KernelUnavailableError as error:
            return error
        _proved[:] = [(tokenizer, engine._encoder)]
        return None

    @staticmethod
    def is_reference(tokenizer: Tokenizer) -> bool:
        """Return False: the kernel is compared with other engines."""
        return False

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        isa: str = self._encoder.isa
        return isa

    def encode(
        self, block: Block, out: NDArray[np.unsignedinteger[Any]] | None = None
    ) -> NDArray[np.unsignedinteger[Any]]:
        """Return the ids of all documents, with the end-of-text ids in place.

        They are written to `out` if it has the type that the kernel writes.
        """
        text, starts, ends = block.text, block.starts, block.ends
        if self._has_unknown(text):
            return self._encode_unknown(block)
        self._grow(len(text))
        if out is None or out.dtype != self._out.dtype:
            out = self._reserve(block)
        count = self._encoder.encode(
            np.frombuffer(text, np.uint8), starts, ends, block.begins, block.closes, out
        )
        if count < 0:
            malformed = -1 - count
            raise _decode_error(text[int(starts[malformed]) : int(ends[malformed])])
        return out[:count].astype(self._dtype, copy=False)

    def encode_splits(
        self,
        block: Block,
        splits: NDArray[np.uint8],
        outs: list[NDArray[np.unsignedinteger[Any]]],
    ) -> list[SplitIds] | None:
        """Write the ids of the pieces with split i to `outs[i]`.

        None if some text is not valid UTF-8 or has something that the kernel does not know, or
        `outs` do not have the type that the kernel writes.
        """
        if any(out.dtype != self._out.dtype for out in outs) or self._has_unknown(block.text):
            return None
        self._grow(len(block.text))
        totals: list[tuple[int, int, int]] = self._encoder.encode_splits(
            np.frombuffer(block.text, np.uint8),
            block.starts,
            block.ends,
            block.begins,
            block.closes,
            splits,
            outs,
        )
        if not totals:
            return None
        return [
            SplitIds(out[:num_ids], num_documents, text_bytes)
            for out, (num_ids, num_documents, text_bytes) in zip(outs, totals, strict=True)
        ]

    def _has_unknown(self, text: memoryview) -> bool:
        return self._unknown is not None and self._unknown.search(text) is not None

    def _encode_unknown(self, block: Block) -> NDArray[np.unsignedinteger[Any]]:
        """Leave a block to the reference."""
        if isinstance(self._tokenizer.model, ByteLevel):
            return TiktokenEngine(self._tokenizer, self._eot).encode(block)
        if self._library is None:
            # Only models of this library have symbols.
            from penstok.engines.sentencepiece import SentencePieceEngine

            self._library = SentencePieceEngine(self._tokenizer, self._eot)
        return self._library.encode(block)

    def _grow(self, num_bytes: int) -> None:
        """Give the tables their full size once there is more than a short text to encode."""
        self._encoded_bytes += num_bytes
        if self._is_small and self._encoded_bytes > _SHORT_BYTES:
            self._encoder.restart(self._eot, self._table_bytes)
            self._is_small = False

    def _reserve(self, block: Block) -> NDArray[np.unsignedinteger[Any]]:
        needed = most_tokens(block)
        if len(self._out) < needed:
            self._out = np.empty(needed, self._out.dtype)
        return self._out


class _Tables(Struct, frozen=True):
    """What an encoder is made from.

    Attributes:
        ranks: Tokens and the ids that they have inside the encoder.
        pattern: The kernel's name of the pattern.
        expression: The pattern itself; empty if there is none.
        eot_id: The end-of-text id inside the encoder.
        bos_id: The begin-of-text id inside the encoder.
        output_ids: What is written for each of these ids; empty if it is the same.
        adds_space: Whether documents get a space before them.
        unknown: What the kernel does not know; text that has it is left to the reference.
    """

    ranks: dict[bytes, int]
    pattern: str
    expression: str
    eot_id: int
    bos_id: int | None
    output_ids: list[int] = field(default_factory=list)
    adds_space: bool = False
    unknown: re.Pattern[bytes] | None = None

    @classmethod
    def from_tokenizer(cls, tokenizer: Tokenizer) -> _Tables:
        model, eot_id, bos_id = tokenizer.model, tokenizer.eot_id, tokenizer.bos_id
        if not isinstance(model, ByteLevel) and model.bpe is not None:
            return cls._from_characters(model.bpe, eot_id, bos_id)
        pattern = find_pattern(tokenizer.pattern)
        if pattern is None:
            raise KernelUnavailableError(
                f"the kernel does not know the pattern of `{tokenizer.name}`",
                where="--engine",
                next_step="pass `--engine auto`",
            )
        return cls(
            tokenizer.ranks, pattern.name, pattern.text, eot_id, bos_id, unknown=pattern.newer
        )

    @classmethod
    def _from_characters(cls, bpe: CharacterBpe, eot_id: int, bos_id: int | None) -> _Tables:
        """Give the ids at boundaries the next two ranks."""
        first = len(bpe.output_ids)
        symbols = b"|".join(re.escape(text.encode()) for text in bpe.symbols)
        return cls(
            bpe.ranks,
            "sentencepiece",
            "",
            first,
            None if bos_id is None else first + 1,
            [*bpe.output_ids, eot_id, eot_id if bos_id is None else bos_id],
            bpe.adds_space,
            re.compile(symbols) if symbols else None,
        )

    def find_max_id(self, encoder: Any) -> int:
        """Return the largest id that is written."""
        if self.output_ids:
            return max(one for one in self.output_ids if one != PART_OF_CHARACTER)
        return max(int(encoder.max_id), self.eot_id, self.bos_id or 0)

    def spell(self, encoder: Any, ids: list[int]) -> bytes:
        """Return the bytes of ids as they are written."""
        if not self.output_ids:
            spelled: bytes = encoder.spell(ids)
            return spelled
        tokens = {self.output_ids[rank]: token for token, rank in self.ranks.items()}
        return b"".join(tokens.get(one, b"") for one in ids)


def _take_proved(tokenizer: Tokenizer, isa: str) -> Any:
    """Return the encoder that `find_obstacle` made for this very tokenizer; None if it did not."""
    try:
        made_for, encoder = _proved.pop()
    except IndexError:
        return None
    is_same = made_for is tokenizer and isa in ("", encoder.isa)
    return encoder if is_same else None


def _check_isa(kernel: ModuleType, isa: str) -> str:
    """Refuse an instruction set that the machine lacks; a requested one is never replaced."""
    available: list[str] = kernel.available_isas()
    if isa and isa not in available:
        raise UsageError(
            f"instruction set `{isa}` is not available here; available: {', '.join(available)}",
            where=ISA_VARIABLE,
            next_step=f"unset `{ISA_VARIABLE}`, or set it to `{available[0]}`",
        )
    return isa


def _decode_error(text: memoryview) -> UnicodeDecodeError | EngineError:
    """Let Python say what is wrong with text that the kernel refused."""
    try:
        str(text, "utf-8")
    except UnicodeDecodeError as error:
        return error
    return EngineError(
        "the kernel refused valid UTF-8",
        where="penstok._kernel",
        next_step="pass `--engine fastokens`, and report this with the text",
    )


# Some of everything that the kernel handles: words, contractions, numbers, runs of white space,
# eleven scripts, emoji, one long word, rulers. The ids are those of tiktoken with GPT-2's ranks.
SELF_TEST_TEXT = (
    "Hello, world! It's 2024: we'll see what they've said \u2014 na\u00efve caf\u00e9s.\n\n"
    "\tdef f(x):\n            return x  # 3.14159\r\n"
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! "
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u3053\u3093\u306b\u3061\u306f "
    "\uc548\ub155\ud558\uc138\uc694 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 "
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0645\u0631\u062d\u0628\u0627 "
    "\u05e9\u05dc\u05d5\u05dd \u0393\u03b5\u03b9\u03ac \U0001f600\U0001f30d \u00a0\u3000x\n"
    "antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis qzxjkvwpq\n"
    "================================================  end   \n"
)
_SELF_TEST_NUMBERS = """
    15496 11 995 0 632 338 48609 25 356 1183 766 644 484 1053 531 851 41492 19945 20954 13 628
    197 4299 277 7 87 2599 198 220 220 220 220 220 220 220 220 220 220 220 1441 2124 220 1303 513
    13 1415 19707 201 198 140 253 21169 18849 38857 16843 20375 11 12466 120 18849 21169 0 220
    19526 254 25001 121 171 120 234 10310 244 45911 234 16764 23294 241 22174 28618 2515 94 31676
    23821 243 230 167 227 243 47991 246 168 226 116 168 248 242 220 19567 103 19567 100 19567 109
    19567 103 19567 242 19567 113 28225 101 11976 106 11976 116 24231 235 11976 97 24231 229
    47048 26897 148 255 39848 12919 14360 102 40010 27072 147 251 7377 241 30950 29945 138 105
    30325 222 8582 234 235 5624 5099 222 87 198 415 29207 44390 3699 1042 29631 261 25955 859
    2500 1416 404 873 41896 709 349 5171 36221 42960 10662 42592 73 74 85 24142 80 198 10052 4770
    220 886 220 220 220 198
"""
SELF_TEST_IDS = [int(number) for number in _SELF_TEST_NUMBERS.split()]
_GPT2_TOKENS = {b"!": 0, b" the": 262, b" gazed": 50255}


def _check_stored_ids(engine: KernelEngine, tables: _Tables) -> None:
    """Refuse to run if a broken build or machine gives wrong ids.

    For other vocabularies and patterns no ids are stored; then the ids must decode to the text.
    """
    text = SELF_TEST_TEXT.encode()
    inside = np.zeros(1, np.bool_)  # the middle of a document: no end-of-text id
    end = np.array([len(text)])
    ids = engine.encode(Block(memoryview(text), np.array([0]), end, inside, inside, end)).tolist()
    has_tokens = all(tables.ranks.get(token) == rank for token, rank in _GPT2_TOKENS.items())
    is_gpt2 = has_tokens and len(tables.ranks) == 50_256
    if is_gpt2 and tables.expression == GPT2_PATTERN:
        agrees = ids == SELF_TEST_IDS
    else:
        agrees = tables.spell(engine._encoder, ids) == text
    if not agrees:
        raise KernelUnavailableError(
            f"the kernel gives wrong ids on this machine (instruction set `{engine.isa}`)",
            where="startup self-test",
            next_step=f"set `{ISA_VARIABLE}=portable`, or pass `--engine fastokens`; report this",
        )
