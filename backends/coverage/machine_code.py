"""`python -m opsieve.backends.coverage.machine_code`: compiles trap.c and prints the constants of
tracer.py.
"""

import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

SOURCE = Path(__file__).with_name("trap.c")
SECTIONS = ("trap", "plant", "clear", "collect")
# No vector registers and no stack protector: the handler may run anywhere, and nothing may be referred to
# outside a section.
FLAGS = [
    "-O2",
    "-c",
    "-fPIC",
    "-fno-stack-protector",
    "-mgeneral-regs-only",
    "-fno-jump-tables",
    "-fcf-protection=none",
]
FLAGS += ["-fno-tree-loop-distribute-patterns", "-fno-asynchronous-unwind-tables"]


def compile_functions(compiler: str = "gcc") -> dict[str, bytes]:
    """Compile the functions and return the bytes of each. Raises CalledProcessError or FileNotFoundError
    without a compiler for x86-64 and binutils.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "trap.o"
        subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(made)], check=True, capture_output=True)
        found = {}
        for name in SECTIONS:
            part = made.with_suffix("." + name)
            subprocess.run(["objcopy", "-O", "binary", "-j", "." + name, str(made), str(part)], check=True)
            found[name] = part.read_bytes()
        return found


def main() -> None:
    """Print the constants."""
    for name, code in compile_functions(*sys.argv[1:]).items():
        lines = "\n".join(f'    "{line}"' for line in textwrap.wrap(code.hex(), 100))
        print(f"{name.upper()} = bytes.fromhex(\n{lines}\n)")


if __name__ == "__main__":
    main()
