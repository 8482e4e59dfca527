"""What an input holds, judged by a sample: UTF-8, text in another encoding, or no text at all.

It opens nothing and never decides by a name. `inputs.probe` takes the sample; `readers.probe` asks
`choose_encoding` about every input whose format is text.
"""

from __future__ import annotations

from penstok.inputs.content.choice import NotUtf8Error, Sample, choose_encoding

__all__ = ["NotUtf8Error", "Sample", "choose_encoding"]
