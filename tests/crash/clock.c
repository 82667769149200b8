/* Shifts the wall clock of a process by the seconds (int64) in the file WEIR_CLOCK. A wait that ends
   at a time of this clock ends at that of the machine: else it would return at once, or never. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real_clock)(clockid_t, struct timespec *);
static volatile int64_t *shift;

__attribute__((constructor)) static void begin(void) {
    real_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *name = getenv("WEIR_CLOCK");
    int file = name ? open(name, O_RDONLY) : -1;
    if (file < 0) return;
    void *found = mmap(0, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) shift = found;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *out) {
    if (!real_clock) begin();
    int answer = real_clock(id, out);
    if (!answer && shift && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        out->tv_sec += *shift;
    return answer;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int answer = clock_gettime(CLOCK_REALTIME, &now);
    if (!answer && out) {
        out->tv_sec = now.tv_sec;
        out->tv_usec = now.tv_nsec / 1000;
    }
    return answer;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

static struct timespec of_machine(const struct timespec *end) {
    struct timespec found = *end;
    if (shift) found.tv_sec -= *shift;
    if (found.tv_sec < 0) found.tv_sec = 0;
    return found;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                           const struct timespec *end) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    if (condition->__data.__wrefs & 2) return real(condition, mutex, end); /* monotonic */
    struct timespec own = of_machine(end);
    return real(condition, mutex, &own);
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t id,
                           const struct timespec *end) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    struct timespec own = id == CLOCK_REALTIME ? of_machine(end) : *end;
    return real(condition, mutex, id, &own);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *end) {
    static int (*real)(sem_t *, const struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "sem_timedwait");
    struct timespec own = of_machine(end);
    return real(semaphore, &own);
}

int sem_clockwait(sem_t *semaphore, clockid_t id, const struct timespec *end) {
    static int (*real)(sem_t *, clockid_t, const struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "sem_clockwait");
    struct timespec own = id == CLOCK_REALTIME ? of_machine(end) : *end;
    return real(semaphore, id, &own);
}
