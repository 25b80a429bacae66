/* What the public interfaces of message-passing libraries cost, measured the same way for all.
 *
 * Compiled against a library's shmem.h (-DWITH_SHMEM), against mpi.h (-DWITH_MPI), or against nothing (-DWITH_RAW N processes
 * that share memory): what the hardware allows. Each of with_*.h defines the few operations that are used here.
 *
 *     measure SECONDS PLACE [ROW ...]         all rows, where none is named
 *
 * Prints a line for each slice of a row's time: the row's name, number of PEs, unit, value; and what a raw round trip between PE 0 and PE 1
 * took right before and right after it, in nanoseconds, through a page of the file PLACE (place.h); `-` and `-` where PLACE is `-`.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined WITH_SHMEM
#include "with_shmem.h"
#elif defined WITH_MPI
#include "with_mpi.h"
#else
#include "with_raw.h"
#endif

enum { SLICES = 9 };
/* Words between the flags of two slices: a page and a cache line. */
enum { APART = (4096 + 64) / sizeof(long) };

static int me, n;
static double seconds;
/* How long a cache line takes from CPU to CPU depends on its address, by a third: each slice has flags of its own. */
static long *flags, *flag;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#include "place.h"

typedef void Body(long count, void *argument);

/* PE 0's time for one of `count` repetitions, in nanoseconds; the others do their part. */
static double once(Body *body, long count, void *argument) {
    barrier();
    double start = now();
    body(count, argument);
    double end = now();
    barrier();
    return (end - start) / count * 1e9;
}

/* Slices of a row, each about as long as asked for. The figure: nanoseconds of a repetition, or, where it is something of which there are
 * `amount` in a repetition, how many in a microsecond. */
static void measure(const char *row, Body *body, void *argument, const char *unit, double amount) {
    long count = 1;
    flag = flags;
    double each = once(body, count, argument);
    /* Not where one repetition is longer than all slices were to be. */
    for (int i = 0; i < 4 && !from_first(i > 0 && each > seconds * 1e9); i++) {
        long next = (long)(seconds / SLICES * 1e9 / (each < 0.2 ? 0.2 : each));
        if (next > 16 * count) next = 16 * count;
        count = from_first(next < 1 ? 1 : next);
        each = once(body, count, argument);
    }
    int placed = place && me < 2;
    for (int i = 0; i < SLICES; i++) {
        flag = flags + i * APART;
        double before = placed ? round_trip(me) : 0;
        /* As long as it takes: a count that was chosen in a bad moment would make slices that see nothing but good ones. */
        double taken = 0;
        long done = 0;
        do {
            taken += once(body, count, argument) * count;
            done += count;
        } while (from_first(taken < seconds / SLICES * 0.8e9));
        double after = placed ? round_trip(me) : 0;
        if (me == 0) {
            double ns = taken / done;
            printf("%s %d %s %.4g", row, n, unit, amount ? amount * 1e3 / ns : ns);
            printf(place ? " %.1f %.1f\n" : " - -\n", before, after);
            fflush(stdout);
        }
    }
}

static long *payload, *counter, *value;
static char *target, *source;
static long turn;

static void ping_pong(long count, void *unused) {
    (void)unused;
    for (long i = 0; i < count; i++) {
        turn++;
        if (me == 0) {
            put_word(flag, turn, 1);
            wait_word(flag, turn);
        } else if (me == 1) {
            wait_word(flag, turn);
            put_word(flag, turn, 0);
        }
    }
}

static void payload_and_flag(long count, void *unused) {
    (void)unused;
    for (long i = 0; i < count; i++) {
        turn++;
        if (me == 0) {
            put_after_put(payload, turn, flag, turn, 1);
            wait_word(flag, turn);
        } else if (me == 1) {
            wait_word(flag, turn);
            put_after_put(payload, turn, flag, turn, 0);
        }
    }
}

static void words(long count, void *unused) {
    (void)unused;
    if (me == 0) {
        for (long i = 0; i < count; i++) stream_word(payload + (i & 511), i, 1);
        complete();
    }
}

static void small_blocks(long count, void *unused) {
    (void)unused;
    if (me == 0) {
        for (long i = 0; i < count; i++) stream_block(payload + (i & 511), source, 8, 1);
        complete();
    }
}

static void blocks(long count, void *bytes) {
    if (me == 0) {
        for (long i = 0; i < count; i++) {
            stream_block(target, source, *(size_t *)bytes, 1);
            complete();
        }
    }
}

/* To the middle PE: where PEs lie on several hosts in order, it is on another host than PE 0. */
static void flushed_words(long count, void *unused) {
    (void)unused;
    if (me == 0) {
        for (long i = 0; i < count; i++) {
            put_word(payload, i, n / 2);
            complete();
        }
    }
}

static void fetch_and_add(long count, void *unused) {
    (void)unused;
    if (me == 0)
        for (long i = 0; i < count; i++) fetch_add(counter, 1, 1);
}

static void barriers(long count, void *unused) {
    (void)unused;
    for (long i = 0; i < count; i++) barrier();
}

static void syncs(long count, void *unused) {
    (void)unused;
    for (long i = 0; i < count; i++) sync_all();
}

static void broadcasts(long count, void *bytes) {
    for (long i = 0; i < count; i++) {
        broadcast(target, source, *(size_t *)bytes);
        barrier();
    }
}

static void reductions(long count, void *unused) {
    (void)unused;
    for (long i = 0; i < count; i++) all_reduce(counter + 1, value);
}

static void exchanges(long count, void *bytes) {
    for (long i = 0; i < count; i++) {
        all_to_all(target, source, *(size_t *)bytes);
        barrier();
    }
}

/* Everybody adds under the lock at PE 0. */
static void contended(long count, void *unused) {
    (void)unused;
    for (long i = 0; i < count; i++) lock_add_unlock(value + 8, 0);
}

/* PE 1 alone, which PE 0 waits for. */
static void alone(long count, void *unused) {
    (void)unused;
    if (me == 1) {
        for (long i = 0; i < count; i++) lock_add_unlock(value + 8, 0);
        put_word(flag, ++turn, 0);
    } else {
        turn++;
        if (me == 0) wait_word(flag, turn);
    }
}

/* PEs that share CPUs: as many on each, whatever the library does. The kernel moves PEs about that yield to each other. */
static void bind_evenly(void) {
    int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(me % cpus, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static int wanted(int argc, char **argv, const char *row) {
    if (argc < 4) return 1;
    for (int i = 3; i < argc; i++)
        if (!strcmp(argv[i], row)) return 1;
    return 0;
}

#define ROW(name, body, argument, unit, amount) \
    if (wanted(argc, argv, name)) measure(name, body, argument, unit, amount);

int main(int argc, char **argv) {
    begin(&argc, &argv);
    if (argc < 3) {
        end();
        return 0;
    }
    me = my_number();
    n = how_many();
    seconds = atof(argv[1]);
    if (getenv("MEASURE_BOUND")) bind_evenly();
    if (strcmp(argv[2], "-")) place_in(argv[2], me);
    size_t room = (size_t)16 << 20;
    flags = symmetric(SLICES * APART * sizeof(long)), payload = symmetric(4096), counter = symmetric(64), value = symmetric(128);
    target = symmetric(room), source = symmetric(room);
    /* Page faults are nobody's cost per operation. */
    memset(target, 1, room);
    memset(source, me, room);
    barrier();
    if (n == 2) {
        ROW("pingpong", ping_pong, 0, "ns", 0)
        ROW("payload_flag", payload_and_flag, 0, "ns", 0)
        ROW("p_rate", words, 0, "M/s", 1)
        ROW("put_nbi_rate", small_blocks, 0, "M/s", 1)
        ROW("fetch_add", fetch_and_add, 0, "ns", 0)
        static const struct { const char *row; size_t bytes; } puts[] = {{"put_4K", 4096}, {"put_64K", 65536}, {"put_1M", 1 << 20}, {"put_16M", 16 << 20}};
        for (size_t i = 0; i < sizeof puts / sizeof *puts; i++) {
            size_t bytes = puts[i].bytes;
            ROW(puts[i].row, blocks, &bytes, "MB/s", bytes)
        }
        ROW("lock_contended", contended, 0, "M/s", n)
        ROW("lock_alone", alone, 0, "M/s", 1)
    }
    if (n <= 4) ROW("put_flush", flushed_words, 0, "ns", 0)
    ROW("barrier", barriers, 0, "ns", 0)
    ROW("sync", syncs, 0, "ns", 0)
    ROW("allreduce_8", reductions, 0, "ns", 0)
    if (n <= 4) {
        static const struct { const char *row; size_t bytes; } sizes[] = {
            {"bcast_8", 8}, {"bcast_4K", 4096}, {"bcast_64K", 65536}, {"bcast_1M", 1 << 20}, {"bcast_16M", 16 << 20}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t bytes = sizes[i].bytes;
            ROW(sizes[i].row, broadcasts, &bytes, "ns", 0)
        }
    }
    size_t each = 65536;
    ROW("alltoall_64K", exchanges, &each, "ns", 0)
    end();
    return 0;
}
