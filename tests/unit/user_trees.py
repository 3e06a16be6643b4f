# SPDX-License-Identifier: GPL-2.0-only
"""A user's build tree of a kernel, as far as the catalogue looks at one, and git in a user's repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

IMAGE = bytes(0x202) + b"HdrS"
"""A bzImage's header, as far as it is looked at."""
NEEDED = [
    "X86",
    "MODULES",
    "MODULE_UNLOAD",
    "KALLSYMS",
    "DEBUG_FS",
    "KPROBES",
    "SERIAL_8250_CONSOLE",
    "BLK_DEV_INITRD",
    "VIRTIO_PCI",
    "VIRTIO_CONSOLE",
]


def build_tree(folder: Path, *options: str, without: str = "") -> Path:
    """An i386 kernel's tree with the options that a guest needs and these, but one."""
    (folder / "arch/x86/boot").mkdir(parents=True)
    (folder / "include/config").mkdir(parents=True)
    chosen = [option for option in (*NEEDED, *options) if option != without]
    (folder / ".config").write_text("".join(f"CONFIG_{option}=y\n" for option in chosen))
    (folder / "include/config/kernel.release").write_text("6.1.0-mine\n")
    (folder / "arch/x86/boot/bzImage").write_bytes(IMAGE)
    return folder


MAKEFILE = """\
alldefconfig:
\t@cp "$$KCONFIG_ALLCONFIG" .config
\t@printf 'CONFIG_X86=y\\nCONFIG_X86_64=y\\nCONFIG_NOTE="the tree'"'"'s own"\\n' >> .config
olddefconfig:
\t@echo "$(ARCH) $(CC)" >> made
bzImage: modules
\t@mkdir -p arch/x86/boot include/config
\t@cp image arch/x86/boot/bzImage
\t@echo 7.3.0-mine > include/config/kernel.release
modules:
\t@echo "  CC      kernel/fork.o"
"""
KCONFIG = """\
config FPROBE
\tbool "Fprobe"
menuconfig FTRACE
\tbool "Tracers"
"""


def kernel_source(folder: Path) -> Path:
    """A kernel's source tree, which make configures and builds in no time. It knows two of the mechanisms' options."""
    (folder / "arch/x86").mkdir(parents=True, exist_ok=True)
    (folder / "arch/x86/Makefile").touch()
    (folder / "kernel/trace").mkdir(parents=True, exist_ok=True)
    (folder / "kernel/trace/Kconfig").write_text(KCONFIG)
    (folder / "Kconfig").touch()
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / "image").write_bytes(IMAGE)
    return folder


def git(folder: Path, *arguments: str) -> str:
    """What git prints, by an author of the tests' own."""
    named = ("-c", "user.name=A Person", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    command = ["git", "-C", str(folder), *named, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
