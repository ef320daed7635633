/* Preloaded by tests: calls on files whose path contains FAIL_PATH fail with the error number FAIL_OPEN, FAIL_READ or
   FAIL_LOCK (of every file), as they do on a network file system that breaks or has no file locks. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int number(const char *name) {
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

static int fails(const char *path, const char *name) {
    const char *part = getenv("FAIL_PATH");
    if (!number(name) || !part || !path || !strstr(path, part)) return 0;
    errno = number(name);
    return 1;
}

static int fails_fd(int fd, const char *name) {
    char link[64], path[4096];
    if (!number(name)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return fails(path, name);
}

int flock(int fd, int operation) {
    if (number("FAIL_LOCK")) {
        errno = number("FAIL_LOCK");
        return -1;
    }
    return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(fd, operation);
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        MODE(flags) \
        if (fails(path, "FAIL_OPEN")) return -1; \
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
    }
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        MODE(flags) \
        if (fails(path, "FAIL_OPEN")) return -1; \
        return ((int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, #name))(folder, path, flags, mode); \
    }
#define FOPEN(name) \
    FILE *name(const char *path, const char *how) { \
        if (fails(path, "FAIL_OPEN")) return NULL; \
        return ((FILE *(*)(const char *, const char *))dlsym(RTLD_NEXT, #name))(path, how); \
    }
#define READ(name) \
    ssize_t name(int fd, void *data, size_t size) { \
        if (fails_fd(fd, "FAIL_READ")) return -1; \
        return ((ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, #name))(fd, data, size); \
    }
#define PREAD(name) \
    ssize_t name(int fd, void *data, size_t size, off_t at) { \
        if (fails_fd(fd, "FAIL_READ")) return -1; \
        return ((ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, #name))(fd, data, size, at); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
FOPEN(fopen)
FOPEN(fopen64)
READ(read)
PREAD(pread)
PREAD(pread64)
