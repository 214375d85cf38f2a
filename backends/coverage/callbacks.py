"""The functions that code built with SanitizerCoverage calls, for a process whose compiler links no runtime
that has them.

Loaded by the zygote before the compiler (`child.py`), never by the main process: the standard library only,
Python 3.8. x86-64 Linux.

A library that was built with `-fsanitize-coverage` cannot be loaded unless something defines these. Its
counters are read by their section (`tracer.py`), so the functions only return; that of `trace-pc-guard` marks
its guard, which makes a counter of it. They come in a library of two pages that is assembled here, so that no
C compiler is needed.
"""

import ctypes
import os
import struct
from typing import Dict, List, Tuple

# Ret
RETURN = bytes.fromhex("c3")
# Mov dword ptr [rdi], 1; ret
MARK = bytes.fromhex("c70701000000c3")
PREFIX = "__sanitizer_cov_"
_SIZES = (1, 2, 4, 8)
NAMES = (
    ["8bit_counters_init", "bool_flag_init", "pcs_init", "trace_pc_guard_init", "trace_pc_guard", "trace_pc"]
    + ["trace_pc_indir", "trace_switch", "trace_gep", "trace_div4", "trace_div8", "trace_cmpf", "trace_cmpd"]
    + ["trace_%s%d" % (kind, size) for kind in ("cmp", "const_cmp") for size in _SIZES]
    + ["%s%d" % (kind, size) for kind in ("load", "store") for size in (*_SIZES, 16)]
)
# Segments of a library must start at a page, and code and data need different protection.
PAGE = 4096
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_READ, _WRITE, _EXECUTE = 4, 2, 1
_HASH, _STRINGS, _SYMBOLS, _STRINGS_SIZE, _SYMBOL_SIZE = 4, 5, 6, 10, 11


def provide() -> None:
    """Load the library so that all later libraries find its functions; if that fails, their own loading
    reports the missing symbol.
    """
    # No file: the worker may not be able to write anywhere.
    fd = os.memfd_create("sanitizer-coverage")
    try:
        os.write(fd, library())
        # RTLD_GLOBAL: the symbols must be visible to libraries that are loaded later.
        ctypes.CDLL("/proc/self/fd/%d" % fd, ctypes.RTLD_GLOBAL)
    except OSError:
        pass
    finally:
        os.close(fd)


def library() -> bytes:
    """Return the bytes of a shared library for x86-64 that defines the functions."""
    functions = {PREFIX + name: MARK if name == "trace_pc_guard" else RETURN for name in NAMES}
    # The ELF header and four program headers
    head = 64 + 4 * 56
    code, places = _code(functions, head)
    strings, symbols = _symbols(functions, places)
    # One bucket, in which all symbols hang.
    chain = list(range(2, len(functions) + 1)) + [0]
    # The old `DT_HASH`: one bucket needs no hash function, and glibc still reads it.
    table = struct.pack("<%dI" % (4 + len(chain)), 1, len(functions) + 1, 1, 0, *chain)
    symbols_at = head + len(code)
    table_at = symbols_at + len(symbols)
    strings_at = table_at + len(table)
    end = strings_at + len(strings)
    facts = [(_HASH, table_at), (_STRINGS, strings_at), (_SYMBOLS, symbols_at)]
    facts += [(_STRINGS_SIZE, len(strings)), (_SYMBOL_SIZE, 24), (0, 0)]
    dynamic = b"".join(struct.pack("<QQ", *fact) for fact in facts)
    segments = [
        (_LOAD, _READ | _EXECUTE, 0, end, PAGE),
        (_LOAD, _READ | _WRITE, PAGE, len(dynamic), PAGE),
        (_DYNAMIC, _READ | _WRITE, PAGE, len(dynamic), 8),
        # Without this header glibc makes the stack of the whole process executable.
        (_STACK, _READ | _WRITE, 0, 0, 16),
    ]
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, len(segments), 64, 0, 0)
    for kind, flags, at, size, align in segments:
        header += struct.pack("<IIQQQQQQ", kind, flags, at, at, at, size, size, align)
    first = header + code + symbols + table + strings
    return first.ljust(PAGE, b"\0") + dynamic


def _code(functions: Dict[str, bytes], begin: int) -> Tuple[bytes, List[int]]:
    """Return the machine code of the functions, and where each stands in the file."""
    code, places = b"", []
    for body in functions.values():
        places.append(begin + len(code))
        # 0xcc is int3: a jump to a wrong place stops at once.
        code += body.ljust(16, b"\xcc")
    return code, places


def _symbols(functions: Dict[str, bytes], places: List[int]) -> Tuple[bytes, bytes]:
    """Return the table of strings and that of symbols."""
    strings, symbols = b"\0", bytes(24)
    for (name, body), place in zip(functions.items(), places):
        # global, a function, defined
        symbols += struct.pack("<IBBHQQ", len(strings), 0x12, 0, 1, place, len(body))
        strings += name.encode() + b"\0"
    return strings, symbols
