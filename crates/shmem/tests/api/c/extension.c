/* Extensions: split-phase barriers, supersteps, prepared puts, restricted windows, shared data; and names that standard functions had as extensions. */
#include "teams.h"

static long words[MAX_PES], stepped[MAX_PES];

/* What was put before an arrival is there after the wait; work goes on in between. */
static void barriers(const struct team *team) {
    shmemx_barrier_t barrier, other;
    CHECK(shmemx_barrier_create(team->handle, &barrier) == 0 && shmemx_barrier_create(team->handle, &other) == 0, "%s", team->name);
    for (long round = 1; round <= 20; round++) {
        for (int i = 0; i < team->size; i++) shmem_long_p(&words[team->rank], round * 100 + me, team->members[i]);
        /* Arriving does not complete: that is up to the program. */
        shmem_quiet();
        shmemx_barrier_arrive(barrier);
        if (round % 3 == 0) shmemx_barrier_arrive(other);
        if (round % 2) while (!shmemx_barrier_test(barrier)) sched_yield();
        else shmemx_barrier_wait(barrier);
        for (int i = 0; i < team->size; i++) CHECK(words[i] == round * 100 + team->members[i], "round %ld of %s", round, team->name);
        if (round % 3 == 0) shmemx_barrier_wait(other);
        shmemx_barrier_step(barrier);
        shmemx_barrier_wait(barrier);
        /* Once the last phase is complete, and not again before this one is. */
        CHECK(shmemx_barrier_try_step(barrier) == 0, "round %ld of %s", round, team->name);
        shmem_long_p(&stepped[team->rank], round, team->members[0]);
        shmem_quiet();
        while (shmemx_barrier_try_step(other)) sched_yield();
        while (shmemx_barrier_try_step(other)) sched_yield();
        if (team->rank == 0) for (int i = 0; i < team->size; i++) CHECK(stepped[i] >= round, "round %ld of %s", round, team->name);
        shmemx_barrier_wait(barrier);
        shmemx_barrier_wait(other);
    }
    for (int i = 0; i < team->size; i++) stepped[i] = 0;
    shmemx_barrier_destroy(barrier);
    shmemx_barrier_destroy(other);
}

/* What is put in one superstep is received in the next, or, overlapped, in the one after it. */
static void supersteps(void) {
    enum { COUNT = 3 };
    for (int overlapped = 0; overlapped < 2; overlapped++) {
        shmemx_supersteps_t steps;
        CHECK(shmemx_supersteps_create(npes * COUNT * sizeof(long), overlapped, &steps) == 0, "supersteps");
        for (long superstep = 1; superstep <= 20; superstep++) {
            /* In every third one, nobody puts. */
            long from = superstep - 1 - overlapped, put[COUNT];
            for (int pe = 0; pe < npes && superstep % 3; pe++) {
                for (int i = 0; i < COUNT; i++) put[i] = superstep * 10000 + me * 100 + pe * 10 + i;
                shmemx_supersteps_put(steps, me * sizeof put, put, sizeof put, pe);
            }
            const long *got = (const long *)shmemx_supersteps_received(steps);
            for (int i = 0; i < npes * COUNT; i++) {
                long expected = from > 0 && from % 3 ? from * 10000 + i / COUNT * 100 + me * 10 + i % COUNT : 0;
                CHECK(got[i] == expected, "superstep %ld, %d: %ld, not %ld", superstep, i, got[i], expected);
            }
            shmemx_supersteps_step(steps);
        }
        shmemx_supersteps_destroy(steps);
    }
}

/* Prepared once, started again and again with what the source then holds. */
static void transfers(void) {
    enum { COUNT = 50 };
    static long to[MAX_PES][COUNT], from[COUNT], again[COUNT];
    static uint64_t told[MAX_PES];
    shmemx_transfer_t plain[MAX_PES], signalled[MAX_PES];
    for (int pe = 0; pe < npes; pe++) {
        plain[pe] = shmemx_transfer_prepare(again, from, sizeof from, pe);
        signalled[pe] = shmemx_transfer_prepare_signal(to[me], from, sizeof from, &told[me], 1, SHMEM_SIGNAL_ADD, pe);
    }
    shmem_barrier_all();
    for (uint64_t round = 1; round <= 20; round++) {
        for (int i = 0; i < COUNT; i++) from[i] = round * 10000 + me * 100 + i;
        for (int pe = 0; pe < npes; pe++) shmemx_transfer_start(signalled[pe]);
        for (int pe = 0; pe < npes; pe++) {
            shmem_signal_wait_until(&told[pe], SHMEM_CMP_GE, round);
            for (int i = 0; i < COUNT; i++) CHECK(to[pe][i] == (long)round * 10000 + pe * 100 + i, "from %d", pe);
        }
        for (int pe = 0; pe < npes; pe++) shmemx_transfer_wait(signalled[pe]);
        int next = (me + 1) % npes, before = (me + npes - 1) % npes;
        shmem_barrier_all();
        shmemx_transfer_start(plain[next]);
        if (round % 2) shmemx_transfer_wait(plain[next]);
        else while (!shmemx_transfer_test(plain[next])) sched_yield();
        memset(from, 0, sizeof from);
        shmem_barrier_all();
        for (int i = 0; i < COUNT; i++) CHECK(again[i] == (long)round * 10000 + before * 100 + i, "from %d", before);
        shmem_barrier_all();
    }
    for (int pe = 0; pe < npes; pe++) {
        shmemx_transfer_free(plain[pe]);
        shmemx_transfer_free(signalled[pe]);
    }
}

/* The next PE may write, the one after it may read, the home may do both, and others nothing. */
static int right(int home, int holder) {
    if (holder == home) return SHMEMX_ACCESS_READ_WRITE;
    if (holder == (home + 1) % npes) return SHMEMX_ACCESS_WRITE;
    if (holder == (home + 2) % npes) return SHMEMX_ACCESS_READ;
    return SHMEMX_ACCESS_NONE;
}

static void windows(void) {
    enum { BYTES = 10000 };
    shmemx_window_t window;
    CHECK(shmemx_window_create(BYTES, right, &window) == 0, "a window");
    unsigned char *local = (unsigned char *)shmemx_window_local(window), bytes[100];
    fill(local, BYTES, me);
    shmem_barrier_all();
    for (int home = 0; home < npes; home++) {
        int rights = right(home, me), result;
        memset(bytes, GUARD, sizeof bytes);
        result = shmemx_window_get(window, bytes, 8 * home, sizeof bytes, home);
        CHECK((result == 0) == (rights == SHMEMX_ACCESS_READ || rights == SHMEMX_ACCESS_READ_WRITE), "get from %d", home);
        unsigned char expected[BYTES];
        fill(expected, BYTES, home);
        CHECK(result ? is_guard(bytes, sizeof bytes) : memcmp(bytes, expected + 8 * home, sizeof bytes) == 0, "get from %d", home);
    }
    shmem_barrier_all();
    fill(bytes, sizeof bytes, me + 1000);
    for (int home = 0; home < npes; home++) {
        int rights = right(home, me), result = shmemx_window_put(window, 200 + 200 * me, bytes, sizeof bytes, home);
        CHECK((result == 0) == (rights == SHMEMX_ACCESS_WRITE || rights == SHMEMX_ACCESS_READ_WRITE), "put to %d", home);
    }
    /* Out of bounds, at one's own. */
    CHECK(shmemx_window_put(window, BYTES - 50, bytes, sizeof bytes, me) != 0 && shmemx_window_get(window, bytes, BYTES + 1, 1, me) != 0, "bounds");
    CHECK(shmemx_window_put(window, 0, bytes, 1, -1) != 0 && shmemx_window_put(window, 0, bytes, 1, npes) != 0, "PEs");
    CHECK(shmemx_window_put(window, 0, NULL, 0, me) == 0 && shmemx_window_get(window, NULL, BYTES, 0, me) == 0, "nothing");
    shmem_quiet();
    shmem_barrier_all();
    unsigned char expected[BYTES];
    fill(expected, BYTES, me);
    for (int holder = 0; holder < npes; holder++)
        if (right(me, holder) & SHMEMX_ACCESS_WRITE) fill(expected + 200 + 200 * holder, sizeof bytes, holder + 1000);
    CHECK(memcmp(local, expected, BYTES) == 0, "only those write who may");
    shmem_barrier_all();
    /* Taken back: from then on, nobody else. */
    shmemx_window_revoke(window);
    shmem_barrier_all();
    for (int home = 0; home < npes; home++)
        CHECK(home == me || shmemx_window_put(window, 0, bytes, 1, home) != 0, "put to %d, which has taken back", home);
    shmem_barrier_all();
    CHECK(memcmp(local, expected, BYTES) == 0, "nobody writes any more");
    shmemx_window_free(window);
}

/* The data come with the lock: whoever has it sees what all before it wrote. */
static void mutexes(void) {
    enum { ROUNDS = 200 };
    struct account { long balance, copy; double last; } initial = { 5, 5, 0.5 }, *account;
    shmemx_mutex_t mutex, zeros;
    CHECK(shmemx_mutex_create(&initial, sizeof initial, &mutex) == 0 && shmemx_mutex_create(NULL, 1000, &zeros) == 0, "mutexes");
    for (int round = 0; round < ROUNDS; round++) {
        account = (struct account *)shmemx_mutex_acquire(mutex);
        CHECK(account->balance == account->copy, "somebody else is in");
        account->balance++;
        account->copy++;
        account->last = me;
        shmemx_mutex_release(mutex);
    }
    shmem_barrier_all();
    account = (struct account *)shmemx_mutex_acquire(mutex);
    CHECK(account->balance == 5 + ROUNDS * npes && account->last >= 0 && account->last < npes, "%ld", account->balance);
    shmemx_mutex_release(mutex);
    char *block = (char *)shmemx_mutex_acquire(zeros);
    CHECK((uintptr_t)block % 16 == 0, "aligned for any type");
    for (int i = 0; i < 1000; i++) CHECK(block[i] == 0, "zeros");
    shmemx_mutex_release(zeros);
    shmem_barrier_all();
    shmemx_mutex_destroy(mutex);
    shmemx_mutex_destroy(zeros);
}

/* What all have written before, all see after. */
static int meet(shmemx_region_t region) {
    int raced = shmemx_region_release(region);
    shmem_barrier_all();
    return shmemx_region_acquire(region) | raced;
}

/* All write all pages, each its own bytes; the checked one tells of two that do not keep to that. */
static void regions(void) {
    enum { BYTES = 5000 };
    static unsigned char bytes[BYTES];
    static const int placements[] = { SHMEMX_REGION_BLOCK, SHMEMX_REGION_CYCLIC, SHMEMX_REGION_FIRST_TOUCH, SHMEMX_REGION_CHECKED };
    for (int p = 0; p < 4; p++) {
        shmemx_region_t region;
        CHECK(shmemx_region_create(BYTES, p % 2 ? 256 : 0, placements[p], &region) == 0, "a region");
        for (int round = 1; round <= 5; round++) {
            for (int i = me; i < BYTES; i += npes) {
                unsigned char value = (unsigned char)(i * round);
                shmemx_region_write(region, i, &value, 1);
            }
            CHECK(meet(region) == 0, "no race");
            shmemx_region_read(region, bytes, 0, BYTES);
            for (int i = 0; i < BYTES; i++) CHECK(bytes[i] == (unsigned char)(i * round), "byte %d in round %d", i, round);
            shmem_barrier_all();
        }
        CHECK(shmemx_region_acquire(region) == 0, "nothing to release");
        shmem_barrier_all();
        /* One after the other, without an acquire in between. */
        for (int pe = 0; pe < 2 && pe < npes; pe++) {
            unsigned char mine = (unsigned char)(200 + pe);
            if (me == pe) {
                shmemx_region_write(region, 77, &mine, 1);
                CHECK((shmemx_region_release(region) != 0) == (pe == 1 && placements[p] == SHMEMX_REGION_CHECKED), "a race is told");
            }
            shmem_barrier_all();
        }
        meet(region);
        shmemx_region_read(region, bytes, 77, 1);
        CHECK(bytes[0] == (npes > 1 ? 201 : 200), "the last one");
        shmem_barrier_all();
        shmemx_region_destroy(region);
    }
}

/* Some of what was an extension before it was standard. */
static void former_names(void) {
    uint64_t word = 0, *symmetric = (uint64_t *)shmem_calloc(1, 8);
    shmemx_signal_add(symmetric, 5, (me + 1) % npes);
    shmem_signal_wait_until(symmetric, SHMEM_CMP_EQ, 5);
    shmem_barrier_all();
    shmemx_uint64_atomic_fetch_nbi(&word, symmetric, (me + 1) % npes);
    shmem_quiet();
    CHECK(word == 5, "shmemx_uint64_atomic_fetch_nbi");
    CHECK(shmemx_uint64_test_all(symmetric, 1, NULL, SHMEM_CMP_EQ, 5) == 1, "shmemx_uint64_test_all");
    static int source = 1, sum;
    CHECK(shmemx_int_sum_inscan(SHMEM_TEAM_WORLD, &sum, &source, 1) == 0 && sum == me + 1, "shmemx_int_sum_inscan");
    shmemx_pcontrol(0);
    shmem_barrier_all();
    /* Without a barrier at its end: no other's memory may be used before there was one. */
    void *block = shmem_malloc_with_hints(64, SHMEMX_MALLOC_NO_BARRIER);
    CHECK(block && SHMEMX_TEAM_NODE == SHMEM_TEAM_SHARED, "extensions of constants");
    shmem_barrier_all();
    shmem_free(block);
}

int main(void) {
    begin();
    make_teams();
    for (int t = 0; t < nteams; t++) {
        if (teams[t].rank >= 0) barriers(&teams[t]);
        shmem_barrier_all();
    }
    shmemx_barrier_t none;
    CHECK(shmemx_barrier_create(SHMEM_TEAM_INVALID, &none) != 0, "no team");
    supersteps();
    transfers();
    for (int i = 0; i < 3; i++) windows();
    mutexes();
    regions();
    former_names();
    return finish();
}
