/* The machine code of tracer.py, which carries it as text so that no compiler is needed where programs run.

   Four functions without calls, globals or relocations, each usable at any address; `python -m opsieve.backends.coverage.machine_code`
   compiles this file and prints their bytes. x86-64 Linux.

   A probe is a byte of a library's text that was replaced by 0xCC (int3). The first thread that gets there traps: `on_trap` puts
   the byte back, notes the probe and has the instruction tried again, so that a probe costs once and nothing from then on. */

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

struct region {      /* a stretch of text with probes */
    u64 base;        /* where the library's address 0 is */
    u64 first, last; /* addresses of its first and last probe */
    u64 count;
    const u32 *points; /* the probes' offsets from base, ascending */
    u8 *bytes;         /* what stood there; 0xCC: no probe can be here */
    u64 index;         /* number of its first probe among all */
};

struct state {
    u64 regions;
    u8 *hits;             /* shared by every process of a campaign: one byte a probe, 1 once it was reached */
    volatile u64 *counts; /* shared with whoever reads: notes, traps, foreign traps */
    u32 *notes;           /* shared with whoever reads: numbers of probes reached here, the top bit set where nobody had been before */
    u64 room;             /* notes that fit */
    u64 earlier;          /* address of the handler that was there before, 0 for none */
    struct region region[16];
};

struct counted {        /* SanitizerCoverage counters of a library: what its own instrumentation writes, one for each block */
    u8 *counters;       /* their section in memory */
    u64 size;           /* of the section, in bytes */
    u64 shift;          /* a counter has 1 << shift bytes */
    const u32 *numbers; /* which probe of this library a counter is, ~0 for none */
    u64 index;          /* number of the library's first probe among all */
};

/* Notes the probes whose counters are not zero, all (every) or those that nobody has reached, and sets the counters to zero. */
__attribute__((section(".collect"))) void collect(struct state *s, struct counted *c, u64 every)
{
    for (u64 at = 0; at < c->size;) {
        u8 *here = c->counters + at;
        if (!((u64)here & 7) && at + 8 <= c->size && !*(const u64 *)here) {
            at += 8;
            continue;
        }
        if (*here) {
            u32 number = c->numbers[at >> c->shift];
            *here = 0;
            if (number != 0xFFFFFFFFu) {
                number += (u32)c->index;
                u8 seen = s->hits[number] ? 1 : __atomic_exchange_n(&s->hits[number], 1, __ATOMIC_SEQ_CST);
                if (every || !seen) {
                    u64 place = __atomic_fetch_add(&s->counts[0], 1, __ATOMIC_SEQ_CST);
                    if (place < s->room)
                        s->notes[place] = seen ? number : number | 0x80000000u;
                }
            }
        }
        at++;
    }
}

/* What ctypes calls: every probe, or (unknown_only) those that nobody has reached, is planted; returns how many are. */
__attribute__((section(".plant"))) u64 plant(struct state *s, u64 unknown_only)
{
    u64 planted = 0;
    for (u64 i = 0; i < s->regions; i++) {
        struct region *r = &s->region[i];
        u8 *base = (u8 *)r->base;
        const u8 *hits = s->hits + r->index;
        for (u64 k = 0; k < r->count; k++) {
            u8 *at = base + r->points[k];
            if (r->bytes[k] == 0xCC)
                continue;
            if (unknown_only && hits[k]) {
                if (*at == 0xCC)
                    *at = r->bytes[k];
                continue;
            }
            if (*at == r->bytes[k])
                *at = 0xCC;
            else if (*at != 0xCC) /* the library in memory is not the file that the points were read from */
                continue;
            planted++;
        }
    }
    return planted;
}

/* Every probe is taken away. */
__attribute__((section(".clear"))) void clear(struct state *s)
{
    for (u64 i = 0; i < s->regions; i++) {
        struct region *r = &s->region[i];
        for (u64 k = 0; k < r->count; k++) {
            u8 *at = (u8 *)r->base + r->points[k];
            if (*at == 0xCC)
                *at = r->bytes[k];
        }
    }
}

__attribute__((section(".trap"))) void on_trap(int number, void *info, void *context)
{
    struct state *s;
    __asm__ volatile("movabs $0x1122334455667788,%0" : "=r"(s));
    u64 *rip = (u64 *)((u8 *)context + 168);
    u64 at = *rip - 1;
    __atomic_fetch_add(&s->counts[1], 1, __ATOMIC_RELAXED);
    for (u64 i = 0; i < s->regions; i++) {
        struct region *r = &s->region[i];
        if (at < r->first || at > r->last)
            continue;
        u32 offset = (u32)(at - r->base);
        u64 low = 0, high = r->count;
        while (low < high) {
            u64 middle = (low + high) / 2;
            if (r->points[middle] < offset)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == r->count || r->points[low] != offset || r->bytes[low] == 0xCC)
            break;
        u8 stood = __atomic_exchange_n((u8 *)at, r->bytes[low], __ATOMIC_SEQ_CST);
        *rip = at;
        if (stood == 0xCC) { /* else another thread was here in between */
            u32 number_ = (u32)(r->index + low);
            if (!__atomic_exchange_n(&s->hits[number_], 1, __ATOMIC_SEQ_CST))
                number_ |= 0x80000000u;
            u64 place = __atomic_fetch_add(&s->counts[0], 1, __ATOMIC_SEQ_CST);
            if (place < s->room)
                s->notes[place] = number_;
        }
        return;
    }
    /* Not ours: to the handler that was there before, else the default, as if we were not here. */
    __atomic_fetch_add(&s->counts[2], 1, __ATOMIC_RELAXED);
    if (s->earlier > 1) {
        ((void (*)(int, void *, void *))s->earlier)(number, info, context);
        return;
    }
    u64 action[4] = {0, 0, 0, 0}; /* SIG_DFL */
    u64 result;
    register u64 size __asm__("r10") = 8;
    __asm__ volatile("syscall" : "=a"(result) : "0"(13), "D"(5), "S"(action), "d"(0), "r"(size) : "rcx", "r11", "memory");
    *rip = at;
}
