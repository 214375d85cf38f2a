/* Native frames of a dying thread, as lines a host can read.

   Loaded into a worker after its compiler was imported and after Python's faulthandler was enabled:
   opsieve_install(fd) puts a handler in front of whatever handles SIGSEGV, SIGABRT, SIGBUS, SIGFPE and SIGILL by then. The
   handler writes the frames, puts the earlier handler back and lets the signal happen again, so faulthandler still
   prints the Python frames, and the process still dies of the signal it was given. The lines (fields parted by tabs):

       @native  <signal number>  <"overflow" when the stack ran out, "call" when a bad address was called, else "fault" or "sent">
       @frame   <module's path, or <jit> for memory of no module>  <0x offset in the module>  <symbol, or ?>
       @end     <"whole", "cut" when there are more frames, or "broken" when the stack could not be walked to its end>

   Frames come innermost first. An offset is that of the faulting instruction in the first frame and of the return address in the others.

   Inside the handler: no malloc, no stdio. backtrace() loads the unwinder when it is first called, so it is called once
   at install. dladdr() takes the loader's lock: a crash of one thread while another is inside dlopen can block, which the
   host's time limit ends; the first line is out by then. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <ucontext.h>
#include <unistd.h>

#define FRAMES 100    /* written at most */
#define OWN 8         /* frames of the handler itself, at most */
#define TEXT 1000     /* bytes of a path or symbol, at most */
#define NEAR 65536    /* a fault this near to the stack pointer is a stack that ran out */

static const int SIGNALS[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
#define COUNT ((int)(sizeof SIGNALS / sizeof *SIGNALS))

static int out = -1;
static char stack[1 << 18];
static struct sigaction earlier[COUNT];
static volatile pid_t walker; /* the thread whose crash is being told, 0 for none */
static sigjmp_buf recover;

#if defined(__x86_64__)
#define PC(c) ((c)->uc_mcontext.gregs[REG_RIP])
#define SP(c) ((c)->uc_mcontext.gregs[REG_RSP])
#elif defined(__aarch64__)
#define PC(c) ((c)->uc_mcontext.pc)
#define SP(c) ((c)->uc_mcontext.sp)
#else
#error "the registers of this machine are not known here"
#endif

static void put(const char *text, size_t size)
{
    while (size) {
        ssize_t done = write(out, text, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return;
        text += done;
        size -= (size_t)done;
    }
}

static size_t add(char *line, size_t at, const char *text)
{
    for (size_t i = 0; text[i] && i < TEXT; i++)
        line[at++] = (unsigned char)text[i] < ' ' ? '?' : text[i];
    return at;
}

static size_t add_number(char *line, size_t at, uintptr_t value, unsigned base)
{
    char digits[24];
    int n = 0;
    do
        digits[n++] = "0123456789abcdef"[value % base];
    while (value /= base);
    while (n)
        line[at++] = digits[--n];
    return at;
}

static void put_frame(uintptr_t address, int innermost)
{
    char line[2 * TEXT + 80];
    Dl_info info;
    /* A return address may lie behind the end of a function whose last act was the call. */
    int known = dladdr((void *)(innermost ? address : address - 1), &info) && info.dli_fname;
    size_t at = add(line, 0, "@frame");
    line[at++] = '\t';
    at = add(line, at, known ? info.dli_fname : "<jit>");
    line[at++] = '\t';
    at = add(line, at, "0x");
    at = add_number(line, at, known ? address - (uintptr_t)info.dli_fbase : address, 16);
    line[at++] = '\t';
    at = add(line, at, known && info.dli_sname ? info.dli_sname : "?");
    line[at++] = '\n';
    put(line, at);
}

static void put_head(int number, const char *how)
{
    char line[64] = "\n"; /* the crash may have come in the middle of a line */
    size_t at = add(line, 1, "@native");
    line[at++] = '\t';
    at = add_number(line, at, (uintptr_t)number, 10);
    line[at++] = '\t';
    at = add(line, at, how);
    line[at++] = '\n';
    put(line, at);
}

static void put_end(const char *how)
{
    char line[64];
    size_t at = add(line, 0, "@end");
    line[at++] = '\t';
    at = add(line, at, how);
    line[at++] = '\n';
    put(line, at);
}

static void walk(ucontext_t *context, int called)
{
    static void *found[FRAMES + OWN];
    uintptr_t pc = (uintptr_t)PC(context);
#if defined(__x86_64__)
    uintptr_t sp = (uintptr_t)SP(context);
    if (called) { /* nothing can be unwound from a bad address, but its caller can: as if the call had returned */
        PC(context) = (greg_t)(*(uintptr_t *)sp);
        SP(context) = (greg_t)(sp + sizeof pc);
    }
#endif
    uintptr_t begin = (uintptr_t)PC(context);
    int n = backtrace(found, FRAMES + OWN), first = 0;
    while (first < n && (uintptr_t)found[first] != begin)
        first++;
    if (begin != pc)
        put_frame(pc, 1);
    if (first == n) { /* not walked out of the handler: what the registers say is all there is */
        put_frame(begin, begin == pc);
        put_end("broken");
    } else {
        int last = n - first > FRAMES ? first + FRAMES : n;
        for (int i = first; i < last; i++)
            put_frame((uintptr_t)found[i], i == first && begin == pc);
        put_end(n == FRAMES + OWN ? "cut" : "whole");
    }
#if defined(__x86_64__)
    PC(context) = (greg_t)pc;
    SP(context) = (greg_t)sp;
#endif
}

static void on_signal(int number, siginfo_t *info, void *opaque)
{
    ucontext_t *context = opaque;
    pid_t self = (pid_t)syscall(SYS_gettid);
    if (walker == self) /* the walk itself crashed, on a stack that was overwritten */
        siglongjmp(recover, 1);
    while (!__sync_bool_compare_and_swap(&walker, 0, self))
        pause(); /* another thread died first; the process ends with it */
    uintptr_t address = (uintptr_t)info->si_addr, sp = (uintptr_t)SP(context);
    int fault = info->si_code > 0;
    int memory = fault && (number == SIGSEGV || number == SIGBUS);
    int called = memory && number == SIGSEGV && address == (uintptr_t)PC(context);
    int overflow = memory && !called && address + NEAR > sp && address < sp + NEAR;
    ucontext_t untouched = *context;
    put_head(number, overflow ? "overflow" : called ? "call" : fault ? "fault" : "sent");
    if (!sigsetjmp(recover, 1)) {
        walk(context, called);
    } else {
        *context = untouched;
        put_end("broken");
    }
    for (int i = 0; i < COUNT; i++)
        sigaction(SIGNALS[i], &earlier[i], NULL);
    walker = 0;
    if (!fault) /* a fault happens again by itself when the instruction is tried again; a sent signal has to be sent again */
        raise(number);
}

int opsieve_install(int fd)
{
    void *warm[2];
    backtrace(warm, 2);
    out = fd;
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    if (sigaltstack(&own, NULL))
        return errno;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER; /* NODEFER: a crash of the walk must reach on_signal */
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < COUNT; i++)
        if (sigaction(SIGNALS[i], &action, &earlier[i]))
            return errno;
    return 0;
}
