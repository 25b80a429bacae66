/* Extensions: split-phase barriers, prepared puts, restricted windows; and names that standard functions had as extensions. */
#include "teams.h"

static long words[MAX_PES];

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
    }
    shmemx_barrier_destroy(barrier);
    shmemx_barrier_destroy(other);
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
    transfers();
    for (int i = 0; i < 3; i++) windows();
    former_names();
    return finish();
}
