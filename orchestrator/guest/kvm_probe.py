# SPDX-License-Identifier: GPL-2.0-only
"""How fast does /dev/kvm execute instructions? A program of its own, since the answer may be a hang.

Run as a script. It makes a virtual machine with one CPU in 32-bit protected mode, lets it count down from
``ITERATIONS``, and prints one JSON object: ``{"cpu_ms", "wall_ms", "instructions"}``, or ``{"error"}`` if KVM
refuses a step. Uses nothing but the standard library, so that it starts in a few milliseconds.

Numbers and structures are those of Linux's ``Documentation/virt/kvm/api.rst`` and ``asm/kvm.h`` for x86-64.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import resource
import struct
import time

ITERATIONS = 100_000
INSTRUCTIONS = 2 * ITERATIONS + 2  # mov, then dec and jnz each time round, then hlt
ROUNDS = 3
CPU_SECONDS = 5
"""Of processor time, then the kernel ends the program: a busy host makes it wait, a KVM that hangs makes it spin."""

MEMORY_BYTES = 0x10000
CODE_ADDRESS = 0x1000
CODE = (
    b"\xb9" + ITERATIONS.to_bytes(4, "little")  # mov ecx, ITERATIONS
    + b"\x49"  # again: dec ecx
    + b"\x75\xfd"  # jnz again
    + b"\xf4"  # hlt
)  # fmt: skip

KVM_API_VERSION = 12
KVM_EXIT_HLT = 5
EXIT_REASON_OFFSET = 8  # in struct kvm_run

CR0_PROTECTION_ENABLE = 1
RFLAGS_RESERVED = 2  # this bit is always set
CODE_SEGMENT = 11  # execute, read, accessed
DATA_SEGMENT = 3  # read, write, accessed

# On Intel CPUs KVM keeps a task state segment and a page table of its own in the guest's address space.
# They have to lie outside the guest's memory and below 4 GB; Python's ioctl passes no number above 2 GB.
IDENTITY_MAP_ADDRESS = 0x7FFBC000
TSS_ADDRESS = 0x7FFBD000


SEGMENT = struct.Struct("<QIH10B")
"""``struct kvm_segment``: base, limit, selector, type, present, dpl, db, s, l, g, avl, unusable, padding."""

SREGS_SIZE, CR0 = 312, 224
"""Bytes of ``struct kvm_sregs``, which begins with the segments CS, DS, ES, FS, GS and SS; where CR0 is in it."""

REGS = struct.Struct("<16QQQ")
"""``struct kvm_regs``: sixteen registers, RIP, RFLAGS."""

REGION = struct.Struct("<IIQQQ")
"""``struct kvm_userspace_memory_region``: slot, flags, address in the guest, size, address of the memory."""

ADDRESS = struct.Struct("<Q")

_WRITES, _READS = 1, 2  # from the caller's side


def _request(number: int, direction: int = 0, argument_bytes: int = 0) -> int:
    return direction << 30 | argument_bytes << 16 | 0xAE << 8 | number


GET_API_VERSION = _request(0x00)
CREATE_VM = _request(0x01)
GET_VCPU_MMAP_SIZE = _request(0x04)
CREATE_VCPU = _request(0x41)
SET_USER_MEMORY_REGION = _request(0x46, _WRITES, REGION.size)
SET_TSS_ADDR = _request(0x47)
SET_IDENTITY_MAP_ADDR = _request(0x48, _WRITES, ADDRESS.size)
RUN = _request(0x80)
SET_REGS = _request(0x82, _WRITES, REGS.size)
GET_SREGS = _request(0x83, _READS, SREGS_SIZE)
SET_SREGS = _request(0x84, _WRITES, SREGS_SIZE)


class KvmRefusalError(Exception):
    """KVM did something else than was requested."""


class CountingMachine:
    """A virtual machine that can do one thing: count down to zero and halt."""

    def __init__(self, kvm: int) -> None:
        if fcntl.ioctl(kvm, GET_API_VERSION) != KVM_API_VERSION:
            raise KvmRefusalError("KVM has an unknown API version")
        vm = fcntl.ioctl(kvm, CREATE_VM)
        fcntl.ioctl(vm, SET_TSS_ADDR, TSS_ADDRESS)
        fcntl.ioctl(vm, SET_IDENTITY_MAP_ADDR, ADDRESS.pack(IDENTITY_MAP_ADDRESS))
        self._memory = mmap.mmap(-1, MEMORY_BYTES)
        self._memory[CODE_ADDRESS : CODE_ADDRESS + len(CODE)] = CODE
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        fcntl.ioctl(vm, SET_USER_MEMORY_REGION, REGION.pack(0, 0, 0, MEMORY_BYTES, address))
        self._cpu = fcntl.ioctl(vm, CREATE_VCPU)
        self._shared = mmap.mmap(self._cpu, fcntl.ioctl(kvm, GET_VCPU_MMAP_SIZE))
        self._enter_protected_mode()

    def _enter_protected_mode(self) -> None:
        registers = bytearray(SREGS_SIZE)
        fcntl.ioctl(self._cpu, GET_SREGS, registers)
        for number, (selector, kind) in enumerate([(0x08, CODE_SEGMENT), *[(0x10, DATA_SEGMENT)] * 5]):
            # Flat: 4 GiB, present, of ring 0, 32 bit, code or data, its limit in pages.
            SEGMENT.pack_into(
                registers, number * SEGMENT.size, 0, 0xFFFFFFFF, selector, kind, 1, 0, 1, 1, 0, 1, 0, 0, 0
            )
        (cr0,) = ADDRESS.unpack_from(registers, CR0)
        ADDRESS.pack_into(registers, CR0, cr0 | CR0_PROTECTION_ENABLE)
        fcntl.ioctl(self._cpu, SET_SREGS, bytes(registers))

    def count_down(self) -> tuple[int, int]:
        """Run the loop once; thread CPU time and wall time, in nanoseconds."""
        fcntl.ioctl(self._cpu, SET_REGS, REGS.pack(*[0] * 16, CODE_ADDRESS, RFLAGS_RESERVED))
        wall = time.monotonic_ns()
        cpu = time.thread_time_ns()
        fcntl.ioctl(self._cpu, RUN)
        cpu = time.thread_time_ns() - cpu
        wall = time.monotonic_ns() - wall
        reason = int.from_bytes(self._shared[EXIT_REASON_OFFSET : EXIT_REASON_OFFSET + 4], "little")
        if reason != KVM_EXIT_HLT:
            raise KvmRefusalError(f"the virtual CPU stopped with exit reason {reason} instead of halting")
        return cpu, wall


def measure() -> dict[str, float | int | str]:
    """Count down ``ROUNDS`` times and report the quickest: others may have been disturbed by the host."""
    try:
        machine = CountingMachine(os.open("/dev/kvm", os.O_RDWR | os.O_CLOEXEC))
        cpu, wall = min(machine.count_down() for _ in range(ROUNDS))
    except (OSError, KvmRefusalError) as error:
        return {"error": str(error)}
    return {"cpu_ms": cpu / 1e6, "wall_ms": wall / 1e6, "instructions": INSTRUCTIONS}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    print(json.dumps(measure()))
