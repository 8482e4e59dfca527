"""Text on which engines that are not exact differ from the reference.

Every job encodes it once with its engine and the reference, and the worker compares the ids. It is
built in and covers what a sample of the user's text may not contain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penstok.types import Block

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["make_check_block"]

_MAX_SPECIAL = 16
_DOCUMENTS = (
    # Contractions in all cases and apostrophes, the long s and the Kelvin sign among them.
    "I'm you're HE'S we'Ve they'LL it'd 'tis don\u2019t rock'n'roll 's 'S '\u017f '\u017f"
    "e x'\u212a 'Re",
    # Numbers of all lengths and scripts.
    "1 12 123 1234 12345 1234567890 3.14159 1,000,000 \u0663\u0664\u0665\u0666 \uff11"
    "\uff12\uff13\uff14 \u00bd\u2167 x1y22z333",
    # White space of all kinds: single, in runs, at line ends and at the end of the text.
    "a  b   c\t\td \t e\n\nf\n \n  g\r\nh\r\n\r\ni\x0b\x0cj\u00a0k\u2003\u3000l\u2028m"
    "\u0085n \n\t\n  \n",
    "                                                                    def f():\n\t\t\t"
    "return    \n   ",
    # Punctuation before words, newlines after punctuation, slashes after newlines.
    "!hello ?!hello .net #tag $x_y __init__ -- --flag /usr/bin\n/etc\n//c ...\n\n/x {}\n}"
    "\r\n\r\n;\n'\n\"",
    # Punctuation that ends a word in some patterns only.
    "f(a,b)|c.d, e!?g-h_i;j (k) l .\n(m) ,\u060cn\u06d4 o\u0964p\u2026q \u3001r\u3002\ns\uff0c t",
    # Capitals and small letters in one word.
    "camelCase HTTPServer XMLHttpRequest iPhone McDonald \u01c5 \u00c9t\u00c9 \u0130stanb"
    "ul stra\u00dfe \ufb01sh",
    # Scripts with and without spaces, and changes from one to another.
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u4f60\u597d\uff0c\u4e16"
    "\u754c\u3002 \u3053\u3093\u306b\u3061\u306f\u4e16\u754c \uc548\ub155\ud558\uc138"
    "\uc694 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35"
    " \u0928\u092e\u0938\u094d\u0924\u0947 \u0645\u0631\u062d\u0628\u0627 \u05e9\u05c1"
    "\u05dc\u05d5\u05dd \u0393\u03b5\u03b9\u03ac a\u6f22b\u5b57C \U00020000\U00010d4a",
    # Not in NFC: decomposed, composed only by compatibility, marks out of order, jamo.
    "e\u0301 a\u0328\u0301 a\u0301\u0328 \u212b \u2126 \u1100\u1161\u11a8 \u304b\u3099 "
    "\uff76\uff9e \u0915\u093c \u0958 q\u0307\u0323 \u0344",
    # Emoji, joiners, zero-width characters, control characters, the replacement character.
    "\U0001f600\U0001f469\u200d\U0001f4bb\U0001f1e9\U0001f1ea\u2764\ufe0f \u200b\u200c"
    "\u200d\ufeff\u00ad\u2060 \x00\x01\x1b[0m\x7f \ufffd \U0010ffff \ue000",
    # How SentencePiece and the byte-level alphabet spell spaces and bytes.
    "\u2581the \u2581\u2581 \u0120hello \u010a <0x0A> <unk> <s> </s> [INST] <|im_start|>",
    "=" * 100 + " " + "ab" * 60 + " " + "antidisestablishmentarianism" * 3 + " " + "\u4e00" * 70,
    "aGVsbG8gd29ybGQ/IT09+/8=" * 8,
    " ",
    "\n",
    "x",
)


def make_check_block(special: Iterable[str]) -> Block:
    """Return the text as a block of documents, with the names of special tokens as plain text."""
    names = list(special)[:_MAX_SPECIAL]
    texts = [text.encode() for text in (*_DOCUMENTS, *names, " ".join(["", *names, "x"]))]
    ends = np.cumsum([len(text) for text in texts])
    starts = np.concatenate(([0], ends[:-1]))
    whole = np.ones(len(texts), np.bool_)
    return Block(memoryview(b"".join(texts)), starts, ends, whole, whole, ends)
