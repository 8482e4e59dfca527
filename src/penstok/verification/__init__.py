"""Is an output what its job made? Records, tokens and inputs held against each other; repair.

`look` reads only and returns a report; `restore` makes whole what it finds. Both print nothing.
"""

from __future__ import annotations

from penstok.verification.findings import Finding, Report
from penstok.verification.look import VerifySettings, verify_output
from penstok.verification.restore import repair_output

__all__ = ["Finding", "Report", "VerifySettings", "repair_output", "verify_output"]
