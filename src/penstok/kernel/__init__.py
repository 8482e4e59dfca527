"""Load the compiled kernel, `penstok._kernel`, which is built from the C++ in this folder.

It loads the module and nothing else: which tokenizers the kernel may encode is decided in
`engines.kernel`. Readers, inputs, training and engines all call it, so it imports only `errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstok.errors import UsageError

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["KernelUnavailableError", "find_kernel_function", "load_kernel"]


class KernelUnavailableError(UsageError):
    """The kernel is not built, does not support the tokenizer, or fails its self-test."""


def load_kernel() -> ModuleType:
    """Return the compiled module.

    Raises:
        KernelUnavailableError: If the package was installed without a C++ compiler.
    """
    try:
        from penstok import _kernel
    except ImportError as error:
        raise KernelUnavailableError(
            "the kernel is not part of this installation (was there no C++ compiler?)",
            where="--engine",
            next_step="pass `--engine auto`, or install a C++ compiler and then Penstok again: "
            "`pip install --force-reinstall --no-deps .` in its source folder",
        ) from error
    return _kernel


def find_kernel_function(name: str) -> Any:
    """Return a function of the compiled module, or None if the kernel is not built."""
    try:
        return getattr(load_kernel(), name)
    except KernelUnavailableError:
        return None
