/* What the public interfaces of message-passing libraries cost, measured the same way for all.
 *
 * Compiled against a library's shmem.h (-DWITH_SHMEM), against mpi.h (-DWITH_MPI), or against nothing (-DWITH_RAW N processes
 * that share memory): what the hardware allows. Each of with_*.h defines the few operations that are used here.
 *
 * Prints a line for each row: its name, number of PEs, value, unit. Values are medians of ROUNDS rounds.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined WITH_SHMEM
#include "with_shmem.h"
#elif defined WITH_MPI
#include "with_mpi.h"
#else
#include "with_raw.h"
#endif

enum { ROUNDS = 9 };

static int me, n;
static double seconds;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

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

/* The median of several rounds, each about as long as asked for; meaningful at PE 0. */
static double measure(Body *body, void *argument) {
    long count = 1;
    double each = once(body, count, argument);
    for (int i = 0; i < 4; i++) {
        long next = (long)(seconds / ROUNDS * 1e9 / (each < 0.2 ? 0.2 : each));
        if (next > 16 * count) next = 16 * count;
        count = from_first(next < 1 ? 1 : next);
        each = once(body, count, argument);
    }
    /* As long as it takes: a count that was chosen in a bad moment would make rounds that see nothing but good ones. */
    double times[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        double taken = 0;
        long done = 0;
        do {
            taken += once(body, count, argument) * count;
            done += count;
        } while (from_first(taken < seconds / ROUNDS * 0.8e9));
        times[i] = taken / done;
    }
    qsort(times, ROUNDS, sizeof *times, compare);
    return times[ROUNDS / 2];
}

static void report(const char *row, double value, const char *unit) {
    if (me == 0) {
        printf("%s %d %.4g %s\n", row, n, value, unit);
        fflush(stdout);
    }
}

static long *flag, *payload, *counter, *value;
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

static int wanted(int argc, char **argv, const char *row) {
    if (argc < 3) return 1;
    for (int i = 2; i < argc; i++)
        if (!strcmp(argv[i], row)) return 1;
    return 0;
}

#define ROW(name, body, argument, expression, unit)                     \
    if (wanted(argc, argv, name)) {                                     \
        double ns = measure(body, argument);                            \
        report(name, expression, unit);                                 \
    }

int main(int argc, char **argv) {
    begin(&argc, &argv);
    if (argc == 3 && !strcmp(argv[2], "nothing")) {
        end();
        return 0;
    }
    me = my_number();
    n = how_many();
    seconds = argc > 1 ? atof(argv[1]) : 0.2;
    size_t room = (size_t)16 << 20;
    flag = symmetric(64), payload = symmetric(4096), counter = symmetric(64), value = symmetric(128);
    target = symmetric(room), source = symmetric(room);
    /* Page faults are nobody's cost per operation. */
    memset(target, 1, room);
    memset(source, me, room);
    barrier();
    if (n == 2) {
        ROW("pingpong", ping_pong, 0, ns, "ns")
        ROW("payload_flag", payload_and_flag, 0, ns, "ns")
        ROW("p_rate", words, 0, 1e3 / ns, "M/s")
        ROW("put_nbi_rate", small_blocks, 0, 1e3 / ns, "M/s")
        ROW("fetch_add", fetch_and_add, 0, ns, "ns")
        static const struct { const char *row; size_t bytes; } puts[] = {{"put_4K", 4096}, {"put_64K", 65536}, {"put_1M", 1 << 20}, {"put_16M", 16 << 20}};
        for (size_t i = 0; i < sizeof puts / sizeof *puts; i++) {
            size_t bytes = puts[i].bytes;
            ROW(puts[i].row, blocks, &bytes, bytes * 1e3 / ns, "MB/s")
        }
        ROW("lock_contended", contended, 0, 1e3 / ns * n, "M/s")
        ROW("lock_alone", alone, 0, 1e3 / ns, "M/s")
    }
    ROW("barrier", barriers, 0, ns, "ns")
    ROW("sync", syncs, 0, ns, "ns")
    ROW("allreduce_8", reductions, 0, ns, "ns")
    if (n <= 4) {
        static const struct { const char *row; size_t bytes; } sizes[] = {
            {"bcast_8", 8}, {"bcast_4K", 4096}, {"bcast_64K", 65536}, {"bcast_1M", 1 << 20}, {"bcast_16M", 16 << 20}};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t bytes = sizes[i].bytes;
            ROW(sizes[i].row, broadcasts, &bytes, ns, "ns")
        }
    }
    size_t each = 65536;
    ROW("alltoall_64K", exchanges, &each, ns, "ns")
    end();
    return 0;
}
