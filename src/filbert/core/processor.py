"""The processor in; an environment variable out that keeps oneDNN from matrix tiles which cannot be used.

Some virtual machines pass on the claim that there are matrix tiles (AMX) and hide the pages that describe them. oneDNN,
which computes torch's bfloat16 products, believes the claim, lays out tiles of no size, and the process ends by an
illegal instruction.
"""

from __future__ import annotations

import os
import sys

CPUINFO = "/proc/cpuinfo"
READ_BYTES = 8_192  # the first core's lines
LIMIT = "ONEDNN_MAX_CPU_ISA"
WITHOUT_TILES = "AVX512_CORE_BF16"
TILES_LEAF = 0x1D  # of CPUID: how many rows and columns a tile has
# push rbx; mov eax, edi; mov ecx, esi; mov r8, rdx; cpuid; mov [r8], eax; mov [r8+4], ebx; mov [r8+8], ecx;
# mov [r8+12], edx; pop rbx; ret
ASK = bytes.fromhex("53 89f8 89f1 4989d0 0fa2 418900 41895804 41894808 4189500c 5b c3")


def heed() -> None:
    """Keeps oneDNN from tiles that are claimed and not described; what the user has set stays."""
    if LIMIT not in os.environ and claims_tiles() and not describes_tiles():
        os.environ[LIMIT] = WITHOUT_TILES


def claims_tiles() -> bool:
    """Whether /proc/cpuinfo lists matrix tiles; false elsewhere than on Linux."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return False
    try:
        with open(CPUINFO, "rb") as lines:
            return b" amx_tile" in lines.read(READ_BYTES)
    except OSError:
        return False


def describes_tiles() -> bool:
    """Whether CPUID gives their sizes; true where it cannot be run."""
    try:
        highest = cpuid(0)[0]
        return highest >= TILES_LEAF and cpuid(TILES_LEAF, 1)[0] > 0
    except (OSError, ValueError):  # pages that hold code are not allowed here
        return True


def cpuid(leaf: int, part: int = 0) -> tuple[int, int, int, int]:
    """What the instruction of that name gives: eax, ebx, ecx, edx. Any program may ask; x86-64 and Linux only."""
    import ctypes  # here, since every command imports this file
    import mmap

    kind = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    with mmap.mmap(-1, mmap.PAGESIZE, prot=kind) as page:
        page.write(ASK)
        code, registers = ctypes.c_char.from_buffer(page), (ctypes.c_uint32 * 4)()
        instruction = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(ctypes.addressof(code))
        instruction(leaf, part, ctypes.addressof(registers))
        del instruction, code  # the page cannot be closed while anything points into it
    return registers[0], registers[1], registers[2], registers[3]
