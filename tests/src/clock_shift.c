/* Shifts the wall clock of the program that it is loaded into (see shifted.rs).
 *
 * It asks the kernel directly: what the dynamic linker or an allocator would
 * have to be ready for can hang a server that brings its own allocator. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *shift; /* microseconds */

__attribute__((constructor)) static void map_shift(void) {
    const char *path = getenv("CLOCK_SHIFT_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) _exit(97); /* A right clock would prove nothing. */
    close(file);
    shift = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    /* Until the file is mapped, and on clocks that nobody sets, nothing jumps. */
    if (failed || !shift || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    int64_t micros = __atomic_load_n(shift, __ATOMIC_RELAXED);
    now->tv_sec += micros / 1000000;
    now->tv_nsec += micros % 1000000 * 1000;
    if (now->tv_nsec < 0) now->tv_sec--, now->tv_nsec += 1000000000;
    if (now->tv_nsec >= 1000000000) now->tv_sec++, now->tv_nsec -= 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *copy) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    if (copy) *copy = exact.tv_sec;
    return exact.tv_sec;
}
