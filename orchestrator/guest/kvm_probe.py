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


class Segment(ctypes.Structure):
    """``struct kvm_segment``: a segment register with its descriptor."""

    _fields_ = (
        ("base", ctypes.c_uint64),
        ("limit", ctypes.c_uint32),
        ("selector", ctypes.c_uint16),
        ("type", ctypes.c_uint8),
        ("present", ctypes.c_uint8),
        ("dpl", ctypes.c_uint8),
        ("db", ctypes.c_uint8),  # 32-bit operands and addresses
        ("s", ctypes.c_uint8),  # code or data
        ("l", ctypes.c_uint8),  # 64-bit code
        ("g", ctypes.c_uint8),  # limit counts pages
        ("avl", ctypes.c_uint8),
        ("unusable", ctypes.c_uint8),
        ("padding", ctypes.c_uint8),
    )


class DescriptorTable(ctypes.Structure):
    """``struct kvm_dtable``."""

    _fields_ = (("base", ctypes.c_uint64), ("limit", ctypes.c_uint16), ("padding", ctypes.c_uint16 * 3))


class SystemRegisters(ctypes.Structure):
    """``struct kvm_sregs``."""

    _fields_ = (
        *((name, Segment) for name in ("cs", "ds", "es", "fs", "gs", "ss", "tr", "ldt")),
        ("gdt", DescriptorTable),
        ("idt", DescriptorTable),
        *((name, ctypes.c_uint64) for name in ("cr0", "cr2", "cr3", "cr4", "cr8", "efer", "apic_base")),
        ("interrupt_bitmap", ctypes.c_uint64 * 4),
    )


class Registers(ctypes.Structure):
    """``struct kvm_regs``."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            *("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rsp", "rbp"),
            *(f"r{number}" for number in range(8, 16)),
            *("rip", "rflags"),
        )
    )


class MemoryRegion(ctypes.Structure):
    """``struct kvm_userspace_memory_region``."""

    _fields_ = (
        ("slot", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("guest_phys_addr", ctypes.c_uint64),
        ("memory_size", ctypes.c_uint64),
        ("userspace_addr", ctypes.c_uint64),
    )


_WRITES, _READS = 1, 2  # from the caller's side


def _request(number: int, direction: int = 0, argument_bytes: int = 0) -> int:
    """Compose the number of a KVM ioctl as ``asm-generic/ioctl.h`` does."""
    return direction << 30 | argument_bytes << 16 | 0xAE << 8 | number


GET_API_VERSION = _request(0x00)
CREATE_VM = _request(0x01)
GET_VCPU_MMAP_SIZE = _request(0x04)
CREATE_VCPU = _request(0x41)
SET_USER_MEMORY_REGION = _request(0x46, _WRITES, ctypes.sizeof(MemoryRegion))
SET_TSS_ADDR = _request(0x47)
SET_IDENTITY_MAP_ADDR = _request(0x48, _WRITES, ctypes.sizeof(ctypes.c_uint64))
RUN = _request(0x80)
SET_REGS = _request(0x82, _WRITES, ctypes.sizeof(Registers))
GET_SREGS = _request(0x83, _READS, ctypes.sizeof(SystemRegisters))
SET_SREGS = _request(0x84, _WRITES, ctypes.sizeof(SystemRegisters))


class KvmRefusalError(Exception):
    """KVM did something else than was requested."""


class CountingMachine:
    """A virtual machine that can do one thing: count down to zero and halt."""

    def __init__(self, kvm: int) -> None:
        if fcntl.ioctl(kvm, GET_API_VERSION) != KVM_API_VERSION:
            raise KvmRefusalError("KVM has an unknown API version")
        vm = fcntl.ioctl(kvm, CREATE_VM)
        fcntl.ioctl(vm, SET_TSS_ADDR, TSS_ADDRESS)
        fcntl.ioctl(vm, SET_IDENTITY_MAP_ADDR, ctypes.c_uint64(IDENTITY_MAP_ADDRESS))
        self._memory = mmap.mmap(-1, MEMORY_BYTES)
        self._memory[CODE_ADDRESS : CODE_ADDRESS + len(CODE)] = CODE
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        fcntl.ioctl(vm, SET_USER_MEMORY_REGION, MemoryRegion(memory_size=MEMORY_BYTES, userspace_addr=address))
        self._cpu = fcntl.ioctl(vm, CREATE_VCPU)
        self._shared = mmap.mmap(self._cpu, fcntl.ioctl(kvm, GET_VCPU_MMAP_SIZE))
        self._enter_protected_mode()

    def _enter_protected_mode(self) -> None:
        registers = SystemRegisters()
        fcntl.ioctl(self._cpu, GET_SREGS, registers)
        flat = {"base": 0, "limit": 0xFFFFFFFF, "present": 1, "s": 1, "db": 1, "g": 1}
        registers.cs = Segment(type=CODE_SEGMENT, selector=0x08, **flat)
        for name in ("ds", "es", "fs", "gs", "ss"):
            setattr(registers, name, Segment(type=DATA_SEGMENT, selector=0x10, **flat))
        registers.cr0 |= CR0_PROTECTION_ENABLE
        fcntl.ioctl(self._cpu, SET_SREGS, registers)

    def count_down(self) -> tuple[int, int]:
        """Run the loop once; thread CPU time and wall time, in nanoseconds."""
        fcntl.ioctl(self._cpu, SET_REGS, Registers(rip=CODE_ADDRESS, rflags=RFLAGS_RESERVED))
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
