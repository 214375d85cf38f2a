/* Preloaded into a test: ends the process by SIGKILL before its n-th call that changes a file, or in the middle of it where it is a write. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static long left = -1, counted = 0;
static char names[1 << 16];

/* Begin to count; n = 0 counts only. */
void kill_at(long n) { left = n; counted = 0; names[0] = 0; }
long calls(void) { return counted; }
const char *called(void) { return names; }

static int last(const char *name) {
    if (left < 0) return 0;
    counted++;
    if (strlen(names) < sizeof names - 32) strcat(strcat(names, name), " ");
    return left > 0 && counted == left;
}
static void end(void) { kill(getpid(), SIGKILL); pause(); }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRAP(name, result, declared, given) \
    result name declared { if (last(#name)) end(); return REAL(name) given; }

WRAP(mkdir, int, (const char *a, mode_t b), (a, b))
WRAP(mkdirat, int, (int a, const char *b, mode_t c), (a, b, c))
WRAP(rename, int, (const char *a, const char *b), (a, b))
WRAP(renameat, int, (int a, const char *b, int c, const char *d), (a, b, c, d))
WRAP(renameat2, int, (int a, const char *b, int c, const char *d, unsigned e), (a, b, c, d, e))
WRAP(unlink, int, (const char *a), (a))
WRAP(unlinkat, int, (int a, const char *b, int c), (a, b, c))
WRAP(rmdir, int, (const char *a), (a))
WRAP(link, int, (const char *a, const char *b), (a, b))
WRAP(linkat, int, (int a, const char *b, int c, const char *d, int e), (a, b, c, d, e))
WRAP(fsync, int, (int a), (a))
WRAP(fdatasync, int, (int a), (a))
WRAP(ftruncate64, int, (int a, off64_t b), (a, b))

ssize_t write(int file, const void *data, size_t size) {
    if (last("write")) { REAL(write)(file, data, size / 2); end(); }
    return REAL(write)(file, data, size);
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    if (last("pwrite")) { REAL(pwrite64)(file, data, size / 2, at); end(); }
    return REAL(pwrite64)(file, data, size, at);
}

#define OPENS(name, declared, given) \
    int name declared { \
        mode_t mode = 0; \
        if (flags & O_CREAT) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); } \
        if (flags & (O_CREAT | O_TRUNC) && last("open")) end(); \
        return REAL(name) given; \
    }
OPENS(open64, (const char *path, int flags, ...), (path, flags, mode))
OPENS(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))
#undef open
#undef openat
OPENS(open, (const char *path, int flags, ...), (path, flags, mode))
OPENS(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
