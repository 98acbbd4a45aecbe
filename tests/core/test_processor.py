"""What the processor claims and describes, and what oneDNN is told of it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from filbert.core import processor

AMX = "processor\t: 0\nflags\t\t: fpu sse2 amx_bf16 avx512_fp16 amx_tile amx_int8\n"
HERE = platform.system() == "Linux" and platform.machine() == "x86_64"
linux = pytest.mark.skipif(not HERE, reason="CPUID is asked on Linux and x86-64 alone")


@linux
def test_cpuid_is_that_of_this_processor() -> None:
    highest, *name = processor.cpuid(0)
    said = b"".join(part.to_bytes(4, "little") for part in (name[0], name[2], name[1])).decode()
    assert highest >= 7
    assert said in Path("/proc/cpuinfo").read_text()  # GenuineIntel, AuthenticAMD, …


@linux
@pytest.mark.parametrize(
    ("flags", "highest", "rows", "told"),
    [
        (AMX, 0x1C, 0, processor.WITHOUT_TILES),  # claimed, and the page that describes them is hidden
        (AMX, 0x20, 0, processor.WITHOUT_TILES),  # the page is there, and empty
        (AMX, 0x20, 0x04002000, None),  # as real ones tell it
        ("flags\t\t: fpu sse2 avx2\n", 0x10, 0, None),
    ],
)
def test_tiles_are_left_alone_where_they_are_claimed_and_not_described(
    flags: str, highest: int, rows: int, told: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(flags)
    monkeypatch.setattr(processor, "CPUINFO", str(tmp_path / "cpuinfo"))
    monkeypatch.setattr(processor, "cpuid", lambda leaf, part=0: (rows if leaf else highest, 0, 0, 0))
    monkeypatch.setenv(processor.LIMIT, "")  # so that what is set below is taken back
    monkeypatch.delenv(processor.LIMIT)
    processor.heed()
    assert os.environ.get(processor.LIMIT) == told


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "claims_tiles", lambda: True)
    monkeypatch.setattr(processor, "describes_tiles", lambda: False)
    monkeypatch.setenv(processor.LIMIT, "AVX2")
    processor.heed()
    assert os.environ[processor.LIMIT] == "AVX2"


@pytest.mark.slow
def test_bfloat16_products_do_not_end_the_process() -> None:
    environment = {name: value for name, value in os.environ.items() if name != processor.LIMIT}
    code = "import filbert, torch; a = torch.ones(64, 64, dtype=torch.bfloat16); print(float((a @ a)[0, 0]))"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "64.0"), done.stderr[-500:]
