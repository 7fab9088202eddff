"""conformance: is this stream right? Bytes in, verdicts out, with the bytes as evidence.

import conformance

report = conformance.check("http://127.0.0.1:8000/v1", model="m", quick=True)
assert report.exit == 0, report.results
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conformance.report.model import Report


def check(url: str, **options: object) -> Report:
    """Check an endpoint and return the report; see `conformance.run.check` for the options.

    Runs in a thread of its own, so it works under asyncio, pytest and notebooks.
    """
    from conformance import run  # trio is imported only by those who send something

    return run.check(url, **options)
