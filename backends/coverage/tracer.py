"""Probes in the native code of this process: they record which functions or blocks were reached and cost
nothing afterwards.

Loaded by the zygote and its workers (`child.py`), never by the main process: the standard library and ctypes
only, Python 3.8. x86-64 Linux.

This is coverage-guided tracing (Nagy and Hicks, "Full-speed Fuzzing", S&P 2019) inside the process: an int3
stands at each point and goes at the first hit. The main process finds the points (`points.py`); here they are
a file. Two things are shared memory, so that what a worker reached is known however it ends: `hits`, one byte
a probe for the whole campaign, and a worker's own `notes`, the numbers of the probes in the order in which it
reached them.

A library that was built with SanitizerCoverage counts by itself: its counters take the place of probes. In a
worker their pages are memory shared with the main process; they are read, and set to zero, after every test.
"""

import ctypes
import mmap
import os
import signal
from typing import Dict, List, Sequence, Tuple

# As in trap.c
REGIONS = 16
# Bytes before the notes: how many there are, traps, foreign traps
HEAD = 4096
# A note's top bit: no worker of the campaign had been there before
NEW = 0x80000000
PAGE = 4096
MAP_FIXED = 0x10
# Compiled from trap.c: `python -m opsieve.backends.coverage.machine_code` prints these.
TRAP = bytes.fromhex(
    "41564989d1415541545589fd5349bb8877665544332211488b82a80000004c8d40ff498b4310f04883400801498b134885d2"
    "747b498d433831db4c3b000f82cd0000004c3940080f82c30000004c8d2cdd000000004589c231c94c89e84829d8498d3cc3"
    "4c8b7748442b57304c89f2eb1f0f1f8000000000488d04114c8b675048d1e8453914840f829b0000004889c24839d172e34c"
    "39f174154929dd4b8d04eb488b50504439148a0f84a1000000498b4310f04883401001498b43284883f801777548c74424e0"
    "00000000488d7424e031d241ba0800000048c74424e800000000b80d000000bf0500000048c74424f00000000048c74424f8"
    "000000000f054d8981a80000005b5d415c415d415ec34883c3014883c0384839da0f8519ffffffeb8c0f1f440000488d4801"
    "e95fffffff0f1f80000000005b89ef4c89ca5d415c415d415effe0660f1f840000000000488b50580fb6140a80facc0f844e"
    "ffffff4186104d8981a800000080facc7597034860498b7308b80100000089ca86041689ca81ca0000008084c0498b43100f"
    "44caba01000000f0480fc110493b53200f8361ffffff498b4318890c90e955ffffff"
)
PLANT = bytes.fromhex(
    "4c8b0f4d85c90f84ab000000554989f2488d4f3031ed534531c94889fb0f1f0048837918004c8b014c8b5b08488b5130746e"
    "31c04901d3eb1b0f1f80000000004080ffcc75044983c1014883c001483b4118734c488b5120488b71288b14820fb634064c"
    "01c24080fecc74de0fb63a4d85d2740741803c0300750d4038fe75c0c602ccebc10f1f004080ffcc75bc4088324883c00148"
    "3b411872b90f1f4400004883c5014883c138483b2b0f826fffffff4c89c85b5dc34c89c8c3"
)
CLEAR = bytes.fromhex(
    "48833f00744b488d4f304531c00f1f0031c04883791800742b0f1f8000000000488b51208b1482480311803acc750b488b71"
    "280fb634064088324883c001483b411872dc4983c0014883c1384c3b0772bfc3"
)
COLLECT = bytes.fromhex(
    "488b4e084989f84989d131c04885c9747a0f1f8000000000488b164801c2f6c207751d488d78084839f9721448833a000f84"
    "9a000000662e0f1f840000000000803a00743d488b4e104889c748d3ef488b4e188b0cb9c6020083f9ff7420034e2031ff41"
    "ba0100000089ca49035008803a00744c4d85c975174084ff7512488b4e084883c0014839c8728dc30f1f4000498b5010bf01"
    "000000f0480fc13a493b782073da89ca81ca000000804584d20f44ca498b5018890cbaebc30f1f4400004486124584d2400f"
    "94c7eba80f1f40004889f8ebb1"
)
# Where TRAP has the address of its state
STATE_MARK = bytes.fromhex("8877665544332211")

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


class Region(ctypes.Structure):
    """`struct region` of trap.c."""

    _fields_ = [
        (name, ctypes.c_uint64) for name in ("base", "first", "last", "count", "points", "bytes", "index")
    ]


class State(ctypes.Structure):
    """`struct state` of trap.c."""

    _fields_ = (
        ("regions", ctypes.c_uint64),
        ("hits", ctypes.c_uint64),
        ("counts", ctypes.c_uint64),
        ("notes", ctypes.c_uint64),
        ("room", ctypes.c_uint64),
        ("earlier", ctypes.c_uint64),
        ("region", Region * REGIONS),
    )


class Counted(ctypes.Structure):
    """`struct counted` of trap.c."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("counters", "size", "shift", "numbers", "index")]


class SignalAction(ctypes.Structure):
    """glibc's `struct sigaction` on x86-64."""

    _fields_ = [
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    ]


class Tracer:
    """The probes of this process and its forks.

    `hits` is the descriptor of a file with a byte for each of `total` probes.
    """

    def __init__(self, hits: int, total: int):
        self.total = total
        self.numbered = 0
        self.counted: List[Counted] = []
        # A page of its own, whose address is written into the machine code.
        block = map_file(PAGE, -1, writable=True)
        self.state = State.from_address(block)
        self.state.hits = map_file(max(total, 1), hits, writable=True)
        self.watch(-1)
        code = TRAP.replace(STATE_MARK, block.to_bytes(8, "little"))
        self.trap, plant, clear, collect = (install(item) for item in (code, PLANT, CLEAR, COLLECT))
        self._plant = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64)(plant)
        self._clear = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(clear)
        self._collect = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)(collect)
        self.block = block
        self.arm()

    def arm(self) -> None:
        """Install the handler of SIGTRAP; the previous handler gets the traps of others."""
        action, before = SignalAction(self.trap), SignalAction()
        # SIGINFO, ONSTACK, NODEFER
        action.flags = 4 | 0x08000000 | 0x40000000
        if libc.sigaction(signal.SIGTRAP, ctypes.byref(action), ctypes.byref(before)):
            raise OSError(ctypes.get_errno(), "no handler of SIGTRAP can be installed")
        # Armed twice, the handler would call itself for foreign traps.
        if before.handler != self.trap:
            self.state.earlier = before.handler or 0

    def add(self, path: str, points: str, count: int) -> None:
        """Plant probes in the loaded library at `path`; the file `points` has `count` offsets (u32,
        ascending) and the bytes that stand there.
        """
        if not count:
            return
        if self.state.regions >= REGIONS:
            raise ValueError("more than %d libraries cannot be traced" % REGIONS)
        base = load_address(path)
        table = mapped_file(points, 5 * count)
        ends = ctypes.c_uint32.from_address(table), ctypes.c_uint32.from_address(table + 4 * (count - 1))
        first, last = (base + end.value for end in ends)
        region = self.state.region[self.state.regions]
        region.base, region.first, region.last, region.count = base, first, last, count
        region.points, region.bytes = table, table + 4 * count
        region.index = self.numbered
        begin = first & -PAGE
        # Done once in the zygote, whose forks inherit the writable pages.
        if libc.mprotect(
            begin, (last + PAGE & -PAGE) - begin, mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        ):
            raise OSError(ctypes.get_errno(), "this system does not let a program's text be written")
        self.state.regions += 1
        self.numbered += count

    def count(self, path: str, points: str, count: int, section: Sequence[int]) -> None:
        """Register the counters of the loaded library at `path`: address and size of their section, bytes of
        a counter.

        The file `points` has the `count` probes' offsets and then, for each counter, which probe it is (u32).
        """
        address, size, width = section
        table = mapped_file(points, 4 * (count + size // width)) + 4 * count
        at = load_address(path) + address
        self.counted.append(Counted(at, size, width.bit_length() - 1, table, self.numbered))
        self.numbered += count

    def plant(self, unknown_only: bool = True) -> int:
        """Put probes where the campaign has not been yet, or everywhere; returns their number."""
        for item in self.counted:
            # What the import of the compiler reached is no merit of a program.
            ctypes.memset(item.counters, 0, item.size)
        return int(self._plant(self.block, int(unknown_only)))

    def collect(self, every: bool = False) -> None:
        """Note the probes that libraries with their own counters have reached since the last call: the new
        ones, or `every` probe.
        """
        for item in self.counted:
            self._collect(self.block, ctypes.addressof(item), int(every))

    def clear(self) -> None:
        """Take every probe away."""
        self._clear(self.block)

    def watch(self, notes: int) -> None:
        """Note reached probes in the file of that descriptor (of `HEAD` bytes, 4 a probe, and the pages of
        the counters, from a page's beginning on).

        -1: in memory of this process's own.
        """
        size = HEAD + 4 * max(self.total, 1)
        at = map_file(size, notes, writable=True)
        self.state.counts, self.state.room, self.state.notes = at, self.total, at + HEAD
        self.counts = (ctypes.c_uint64 * 3).from_address(at)
        place = size + PAGE - 1 & -PAGE
        for item in self.counted if notes >= 0 else ():
            begin = item.counters & -PAGE
            length = (item.counters + item.size + PAGE - 1 & -PAGE) - begin
            # The pages around the counters hold other data of the library too, which must be there when the
            # file takes their place.
            os.pwrite(notes, ctypes.string_at(begin, length), place)
            flags = mmap.MAP_SHARED | MAP_FIXED
            if libc.mmap(begin, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, notes, place) != begin:
                raise OSError(ctypes.get_errno(), "the counters cannot be shared")
            place += length

    @property
    def position(self) -> int:
        """How many notes there are."""
        # The handler counts on when the notes are full.
        return min(int(self.counts[0]), self.total)

    @property
    def foreign(self) -> int:
        """Traps that were not ours."""
        return int(self.counts[2])

    def notes(self, begin: int = 0) -> Sequence[int]:
        """Return the notes from `begin` on."""
        return (ctypes.c_uint32 * self.position).from_address(self.state.notes)[begin:]

    def begin_again(self) -> None:
        """Plant every probe and clear the notes, so that notes are complete from now on instead of only
        new.
        """
        self.plant(unknown_only=False)
        self.counts[0] = 0


def map_file(size: int, fd: int, writable: bool = False) -> int:
    """Map a file and return its address: shared if `writable`, otherwise private; fresh private memory for
    -1.
    """
    protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    flags = (
        (mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if fd < 0
        else mmap.MAP_SHARED
        if writable
        else mmap.MAP_PRIVATE
    )
    at = libc.mmap(None, size, protection, flags, fd, 0)
    if at in (None, 2**64 - 1):
        raise OSError(ctypes.get_errno(), "no memory for the probes")
    return int(at)


def mapped_file(path: str, size: int) -> int:
    """Return the address of a file's first bytes in memory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return map_file(size, fd)
    finally:
        os.close(fd)


def install(code: bytes) -> int:
    """Return the address of machine code, ready to be called."""
    # Written first and made executable later: some systems refuse memory that is both.
    at = map_file(PAGE, -1, writable=True)
    ctypes.memmove(at, code, len(code))
    if libc.mprotect(at, PAGE, mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "this system does not let a program make code")
    return at


def modules() -> List[Tuple[str, int]]:
    """List every library that is loaded here: its path and where its address 0 is."""
    found: Dict[str, int] = {}
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(None, 5)
            # The first mapping of a file begins at its offset 0.
            if len(fields) == 6 and fields[5].startswith("/") and fields[2].strip("0") == "":
                found.setdefault(fields[5], int(fields[0].partition("-")[0], 16))
    return list(found.items())


def load_address(path: str) -> int:
    """Return where the address 0 of a loaded library is; raise OSError if it is not loaded."""
    wanted = os.path.realpath(path)
    for name, base in modules():
        if os.path.realpath(name) == wanted:
            return base
    raise OSError("%s is not loaded" % path)
