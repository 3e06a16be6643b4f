# SPDX-License-Identifier: GPL-2.0-only
"""Are calls that were counted kept, and only those that have changed counted anew?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from host_toolchain import a_kernel

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.cost import counted_table as module
from orchestrator.cost.call_table import TableCall, call_table
from orchestrator.cost.cost_machine import DEFAULT_CPU, DEFAULT_KERNEL, cost_machine
from orchestrator.cost.counted_table import CountedCall, TablePart, counted_part, counted_table, table_parts

PART = TablePart([])
"""Its calls are named by their digests."""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the calls that a guest was asked for; none is."""
    names: list[str] = []

    def count(_: object, __: object, calls: Sequence[TableCall]) -> dict[str, CountedCall]:
        names.extend(call.name for call in calls)
        return {call.name: CountedCall(functions={f"sys_{call.name}": 1}, tracepoints={"a": 2}) for call in calls}

    monkeypatch.setattr(module, "_artifacts", lambda *_: None)
    monkeypatch.setattr(module, "_common", lambda _: {"kernel": "one"})
    monkeypatch.setattr(module, "_title", lambda _: "calls")
    monkeypatch.setattr(module, "_count", count)
    return names


def test_a_changed_call_alone_is_counted_anew(
    tmp_path: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, kernel = BuildContext(Cache(tmp_path)), a_kernel(DEFAULT_KERNEL)
    digests = dict.fromkeys(["getppid", "read_zero", "fork"], "old")
    monkeypatch.setattr(module, "call_digests", lambda _: dict(digests))
    first = counted_part(context, kernel, cost_machine(DEFAULT_CPU), PART)
    assert counted_part(context, kernel, cost_machine(DEFAULT_CPU), PART) == first
    assert counted == ["getppid", "read_zero", "fork"]
    digests |= {"read_zero": "new", "pipe": "new"}
    second = counted_part(context, kernel, cost_machine(DEFAULT_CPU), PART)
    assert counted[3:] == ["read_zero", "pipe"]
    assert list(second.calls) == ["getppid", "read_zero", "fork", "pipe"]
    monkeypatch.setattr(module, "_common", lambda _: {"kernel": "another"})
    counted_part(context, kernel, cost_machine(DEFAULT_CPU), PART)
    assert counted[5:] == ["getppid", "read_zero", "fork", "pipe"]
    assert second.functions.calls["fork"] == {"sys_fork": 1}
    assert "fork" not in second.functions_of_one_process.calls
    assert second.tracepoints.calls["fork"] == {"a": 2}


def test_calls_that_need_modules_are_the_last_part_and_have_guests_of_their_own(
    tmp_path: Path, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, kernel = BuildContext(Cache(tmp_path)), a_kernel(DEFAULT_KERNEL)
    loaded: list[Sequence[str]] = []
    monkeypatch.setattr(module, "_artifacts", lambda _, __, ___, modules=(): loaded.append(modules))
    without_ext4 = lambda _, names: "it has no module ext4 of its own" if "ext4" in names else None  # noqa: E731
    monkeypatch.setattr(module, "missing_module_reason", without_ext4)
    table = counted_table(context, kernel, cost_machine(DEFAULT_CPU))
    without = [name for name, call in call_table().items() if not call.modules]
    needing = [name for name, call in call_table().items() if call.modules and "ext4" not in call.modules]
    assert counted == [*table.calls] == [*without, *needing]
    assert loaded[-1] == ["null_blk"]
    assert {*map(tuple, loaded[:-1])} == {()}
    monkeypatch.setattr(module, "missing_module_reason", lambda _, __: "it has no modules: everything is built in")
    assert [call.name for part in table_parts(kernel) for call in part.calls] == without


def test_each_call_of_the_table_has_a_digest_of_its_own() -> None:
    digests = module.call_digests([*call_table().values()])
    assert list(digests) == list(call_table())
    assert len({*digests.values()}) == len(digests)
