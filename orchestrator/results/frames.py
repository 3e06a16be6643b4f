# SPDX-License-Identifier: GPL-2.0-only
"""Results as tables of pandas, of the extra ``pandas``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.errors import HostError
from orchestrator.results.contract import RunRecord

if TYPE_CHECKING:
    from pandas import DataFrame


_PROOFS = {"evidence", "work", "text", "profile", "executed"}


def frame(rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """A row for each mapping. Raises HostError without pandas."""
    try:
        from pandas import DataFrame
    except ImportError:
        raise HostError("pandas is not installed", hint="pip install 'probe-lab[pandas]'") from None
    return DataFrame(list(rows))


def cell_rows(record: RunRecord) -> Iterable[dict[str, Any]]:
    """The fields of each cell without its proofs, one level deep: ``low`` and ``high``, ``parameters.call``."""
    for cell in record.cells:
        fields = {"reason": None, **cell.model_dump(exclude=_PROOFS)}
        low, high = fields.pop("interval") or (None, None)
        nested = {name: fields.pop(name, None) or {} for name in ("parameters", "purposes", "reference")}
        flat = {f"{name}.{key}": value for name, inner in nested.items() for key, value in inner.items()}
        yield {"run": record.run, "experiment": record.experiment, **fields, "low": low, "high": high, **flat}
