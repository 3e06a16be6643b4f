# SPDX-License-Identifier: GPL-2.0-only
"""Runs of calls that are typical, or at the edge of what a report has to print."""

from __future__ import annotations

from record_builders import (
    COUNTS,
    capabilities,
    cell,
    evidence,
    failed,
    jumped_to,
    mail_table,
    noop_list,
    recording_list,
    reference,
    run,
    wall_list,
)

from orchestrator.results.contract import RunRecord

RELEASE = {"kernel_release": "6.1.0-49-686"}
PANIC = (
    "the guest's kernel panicked while kprobe was measured; the console's last lines were\n"
    "[    1.204512] BUG: unable to handle page fault for address: cbbc0000 in the handler of this module\n"
    "[    1.204733] Kernel panic - not syncing: Fatal exception in interrupt"
)

RUNS: dict[str, RunRecord] = {
    "with_reference": run(*(cell(probe, reference=reference(probe), parameters=RELEASE) for probe in COUNTS)),
    "without_reference": run(*(cell(probe) for probe in COUNTS)),
    "with_failures": run(
        cell("none", reference=reference("none")),
        failed("kprobe", PANIC, reference=reference("kprobe")),
        cell("jprobe", reference=reference("jprobe"), evidence=evidence("jprobe", disturbed=3)),
        failed("djprobe", "not run: interrupted", status="skipped", reference=reference("djprobe")),
    ),
    "all_failed": run(failed("none", "the guest did not boot")),
    "single_column": run(cell("djprobe", overhead=None, interval=None)),
    "two_tables_with_fractions": run(
        cell("none", samples=[409.0002, 409.25], value=409.1251),
        cell("kprobe", samples=[1036.0], value=1036.0, overhead=626.8749),
        cell("none", id="athlon", cpu="athlon", kernel="debian-amd64", smp=2),
        cell("kprobe", id="athlon/kprobe", cpu="athlon", kernel="debian-amd64", smp=2),
    ),
    "empty": run(),
    "lists": run(*noop_list("list4"), *noop_list("list7"), *recording_list("list12")),
    "mail": run(*mail_table("x86-32"), *mail_table("x86-64")),
    "mail_with_failures": run(
        *(one for one in mail_table("x86-32") if one.probe in ("none", "kprobe", "kprobe-optimized")),
        failed(
            "djprobe",
            "this kernel always boosts a kretprobe",
            id="x86-32/kretprobe",
            status="unsupported",
            table="x86-32",
            cpu="xeon-e5410",
            kernel="lab-i386-smp",
            probe="kretprobe",
        ),
    ),
    "rates": run(
        *jumped_to(("called", "debian-amd64@6.12"), fentry=151, fexit=212, kretprobe=683),
        *jumped_to(("jumped-to", "debian-amd64@7.3"), fentry=137, fexit=196, kretprobe=679),
    ),
    "capabilities": run(*capabilities()),
    "capabilities_that_deviate": run(
        *(
            capability
            for capability in capabilities()
            if capability.probe.startswith("djprobe") and capability.probe != "djprobe.anywhere"
        ),
        capabilities("djprobe.anywhere", refused=False)[0],
        failed("kprobe", "1000 calls were made and the probe's handler ran 999 times", probe="kprobe.break"),
    ),
    "wall": run(*wall_list()),
    "wall_by_kvm": run(*wall_list("kvm")),
}
