# SPDX-License-Identifier: GPL-2.0-only
"""Which readers are fuzzed, by name."""

from __future__ import annotations

from orchestrator.errors import ConfigError

from .target import Target

_SLOW = 10_000
"""Inputs every night for a reader that takes more than a millisecond for one."""

_TARGETS = (
    Target("frames", "channels"),
    Target("serial-line", "channels"),
    Target("login", "channels", longest=1024),
    Target("serial-replies", "channels"),
    Target("marked-output", "channels"),
    Target("ssh-greeting", "sshd", nightly=_SLOW),
    Target("sftp-replies", "sshd", nightly=_SLOW),
    Target("console", "guest_console"),
    Target("kernel-reports", "guest_console", longest=1 << 16),
    Target("ktap", "guest_console"),
    Target("ftracetest", "guest_console"),
    Target("kallsyms", "guest_lists"),
    Target("modules", "guest_lists"),
    Target("kprobes-list", "guest_lists"),
    Target("kprobes-blacklist", "guest_lists"),
    Target("traced-functions", "guest_lists"),
    Target("probe-sites", "guest_lists"),
    Target("text-layout", "guest_memory"),
    Target("changed-text", "guest_memory", longest=256),
    Target("ring", "recordings"),
    Target("recorder-report", "recordings"),
    Target("plugin-counts", "recordings"),
    Target("call-output", "program_output"),
    Target("bpf-reports", "guest_probes"),
    Target("peeked-bytes", "guest_probes", longest=512),
    Target("call-results", "program_output", longest=512),
    Target("scaling-output", "program_output", longest=8192),
    Target("system-output", "program_output"),
    Target("experiment", "user_files", nightly=_SLOW, expected=ConfigError),
    Target("price-list", "user_files", nightly=_SLOW, expected=ConfigError),
    Target("results", "stored_runs", longest=8192, nightly=_SLOW),
    Target("identity", "stored_runs", longest=512),
    Target("provenance", "stored_runs"),
    Target("profile", "stored_runs"),
    Target("steps-log", "stored_runs"),
    Target("stored-record", "stored_runs"),
    Target("store-file", "stored_runs", longest=1 << 16, nightly=_SLOW),
    Target("night-note", "stored_runs", longest=128),
    Target("pins", "stored_runs", longest=1024),
    Target("image-symbols", "kernel_files", longest=1 << 16, nightly=_SLOW),
    Target("vmlinux", "kernel_files", longest=8192, nightly=_SLOW),
    Target("system-map", "kernel_files"),
    Target("bzimage", "kernel_files", longest=8192),
    Target("kernel-elf", "kernel_files", longest=2048),
    Target("module", "kernel_files", longest=8192, nightly=_SLOW),
    Target("program", "kernel_files", longest=8192, nightly=_SLOW),
    Target("package-list", "package_lists"),
    Target("apt-messages", "package_lists"),
    Target("apt-sources", "package_lists"),
)

TARGETS = {target.name: target for target in _TARGETS}
