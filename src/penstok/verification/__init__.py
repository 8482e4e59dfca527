"""Checks whether an output is what its job made, and repairs it.

`verify` compares records, tokens and inputs, writes nothing and returns a report; `repair`
re-encodes what is damaged. Neither prints: the command line words the report.
"""

from __future__ import annotations

from penstok.verification.findings import Finding, Report
from penstok.verification.repair import repair_output
from penstok.verification.verify import VerifySettings, verify_output

__all__ = ["Finding", "Report", "VerifySettings", "repair_output", "verify_output"]
