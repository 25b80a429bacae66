/* The operations of measure.c in loads and stores of shared memory: the limit. N processes, from the environment; RAW_SLEEP: those who
 * wait for a barrier sleep until they are woken, else they spin, or yield where there are more of them than CPUs. */
#include <immintrin.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct shared {
    _Alignas(128) long arrived;
    _Alignas(128) long phase;
    _Alignas(128) long next;
    _Alignas(128) long serving;
    _Alignas(128) long first;
    _Alignas(128) long here[2][16];
};
enum { MOST = 16 };
static const size_t part = (size_t)40 << 20;
static struct shared *shared;
static char *base, *next;
static int number, count_of_pes, cpus, sleeps;
static long phase;

static void begin(int *argc, char ***argv) {
    (void)argc, (void)argv;
    count_of_pes = atoi(getenv("RAW_NPES"));
    cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    sleeps = getenv("RAW_SLEEP") != 0;
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    base = mmap(0, part * count_of_pes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 1; i < count_of_pes; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            number = i;
            break;
        }
    if (count_of_pes <= cpus) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(number, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    base += part * number;
    next = base;
}
static void end(void) {
    if (number == 0)
        while (wait(0) > 0) {}
}
static int my_number(void) { return number; }
static int how_many(void) { return count_of_pes; }
static void *symmetric(size_t bytes) {
    char *memory = next;
    next += (bytes + 127) / 128 * 128;
    return memory;
}
static inline void *there(const void *mine, int pe) { return (char *)mine + ((long)pe - number) * (long)part; }
static inline void relax(void) {
    if (count_of_pes > cpus) sched_yield();
    else _mm_pause();
}
static inline void store(long *to, long value) { __atomic_store_n(to, value, __ATOMIC_RELEASE); }
static inline long load(long *from) { return __atomic_load_n(from, __ATOMIC_ACQUIRE); }
static inline void put_word(long *to, long value, int pe) { store(there(to, pe), value); }
static inline void wait_word(long *word, long value) {
    while (load(word) < value) relax();
}
static inline void put_after_put(long *data, long x, long *flag, long value, int pe) {
    store(there(data, pe), x);
    store(there(flag, pe), value);
}
static inline void stream_word(long *to, long value, int pe) { store(there(to, pe), value); }
static inline void stream_block(void *to, const void *from, size_t bytes, int pe) { memcpy(there(to, pe), from, bytes); }
static inline void complete(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline long fetch_add(long *word, long value, int pe) { return __atomic_fetch_add((long *)there(word, pe), value, __ATOMIC_SEQ_CST); }
/* Two with a CPU each tell each other; more count. */
static inline void barrier(void) {
    phase++;
    if (sleeps) {
        if (__atomic_add_fetch(&shared->arrived, 1, __ATOMIC_SEQ_CST) == phase * count_of_pes) {
            store(&shared->phase, phase);
            syscall(SYS_futex, &shared->phase, FUTEX_WAKE, INT_MAX, 0, 0, 0);
        }
        for (long seen; (seen = load(&shared->phase)) < phase;) syscall(SYS_futex, &shared->phase, FUTEX_WAIT, (int)seen, 0, 0, 0);
    } else if (count_of_pes == 2) {
        store(&shared->here[number][0], phase);
        while (load(&shared->here[1 - number][0]) < phase) relax();
    } else if (__atomic_add_fetch(&shared->arrived, 1, __ATOMIC_SEQ_CST) == phase * count_of_pes) {
        store(&shared->phase, phase);
    } else {
        while (load(&shared->phase) < phase) relax();
    }
}
static inline void sync_all(void) { barrier(); }
static void broadcast(void *to, const void *from, size_t bytes) {
    barrier();
    if (number) memcpy(to, there(from, 0), bytes);
}
static void all_reduce(long *to, const long *from) {
    barrier();
    long sum = 0;
    for (int pe = 0; pe < count_of_pes; pe++) sum += load(there(from, pe));
    *to = sum;
    barrier();
}
static void all_to_all(void *to, const void *from, size_t each) {
    barrier();
    for (int i = 0; i < count_of_pes; i++) {
        int pe = (number + i) % count_of_pes;
        memcpy((char *)there(to, pe) + number * each, (const char *)from + pe * each, each);
    }
}
/* A ticket lock, which is fair. */
static inline void lock_add_unlock(long *word, int pe) {
    long mine = __atomic_fetch_add(&shared->next, 1, __ATOMIC_SEQ_CST);
    while (load(&shared->serving) != mine) relax();
    long *at = there(word, pe);
    store(at, load(at) + 1);
    store(&shared->serving, mine + 1);
}
static long from_first(long count) {
    if (number == 0) store(&shared->first, count);
    barrier();
    count = load(&shared->first);
    barrier();
    return count;
}
