/* Many threads of each PE at once: blocks, words, atomics, signals, waits, locks, contexts and, each on a team of its own,
   collectives. */
#include <pthread.h>
#include "test.h"

enum { THREADS = 4, ROUNDS = 40, MAX_PES = 20, BLOCK = 300 };
static long blocks[THREADS][MAX_PES][BLOCK];
static long counter, own_counter[THREADS], turn[THREADS], answer[THREADS], locks[THREADS], guarded[THREADS], sums[THREADS][2];
static uint64_t signals[THREADS];
static shmem_team_t teams[THREADS]; /* one each: two that the program makes, and the predefined ones where both have all PEs */
static pthread_barrier_t together;

static void *work(void *argument) {
    int t = (int)(intptr_t)argument, next = (me + 1) % npes, before = (me + npes - 1) % npes;
    long source[BLOCK], back[BLOCK];
    shmem_ctx_t ctx;
    pthread_barrier_wait(&together);
    CHECK(shmem_team_create_ctx(teams[t], t % 2 ? SHMEM_CTX_PRIVATE : 0, &ctx) == 0, "thread %d", t);
    for (long round = 1; round <= ROUNDS; round++) {
        /* Into one's own block of every PE, and back. */
        int pe = (int)(noise(me, t, round) % npes);
        for (int i = 0; i < BLOCK; i++) source[i] = round * 1000000 + me * 1000 + i;
        if (round % 2) {
            shmem_ctx_long_put_nbi(ctx, blocks[t][me], source, BLOCK, pe);
            shmem_ctx_quiet(ctx);
            shmem_ctx_long_get(ctx, back, blocks[t][me], BLOCK, pe);
        } else {
            shmem_long_put(blocks[t][me], source, BLOCK, pe);
            shmem_quiet();
            shmem_long_get_nbi(back, blocks[t][me], BLOCK, pe);
            shmem_quiet();
        }
        CHECK(memcmp(source, back, sizeof back) == 0, "thread %d, round %ld, PE %d", t, round, pe);
        shmem_long_atomic_inc(&counter, 0);
        CHECK(shmem_long_atomic_fetch_add(&own_counter[t], 1, me) == round - 1, "thread %d, round %ld", t, round);
        /* The same thread of the next PE is told, and tells the one after it. */
        if (round % 2) shmem_long_p(&turn[t], round, next);
        else shmem_ctx_long_atomic_set(ctx, &turn[t], round, next);
        shmem_long_wait_until(&turn[t], SHMEM_CMP_EQ, round);
        shmem_ctx_long_put_signal(ctx, &answer[t], &round, 1, &signals[t], 1, SHMEM_SIGNAL_ADD, before);
        shmem_signal_wait_until(&signals[t], SHMEM_CMP_GE, round);
        CHECK(answer[t] == round, "thread %d, round %ld: %ld", t, round, answer[t]);
        /* Nobody is sent the next round's before he has seen this one's. */
        CHECK(shmem_team_sync(teams[t]) == 0, "thread %d", t);
        sums[t][0] = round + me;
        CHECK(shmem_long_sum_reduce(teams[t], &sums[t][1], &sums[t][0], 1) == 0, "thread %d", t);
        CHECK(sums[t][1] == round * npes + npes * (npes - 1) / 2, "thread %d, round %ld: %ld", t, round, sums[t][1]);
        /* One lock for each thread number, for all PEs. */
        if (round % 4 == 0) {
            if (round % 8) shmem_set_lock(&locks[t]);
            else while (shmem_test_lock(&locks[t])) sched_yield();
            long seen = shmem_long_g(&guarded[t], 0);
            shmem_long_p(&guarded[t], seen + 1, 0);
            shmem_clear_lock(&locks[t]);
        }
        if (round % 10 == 0) {
            shmem_ctx_destroy(ctx);
            CHECK(shmem_team_create_ctx(teams[t], 0, &ctx) == 0, "thread %d", t);
        }
        CHECK(shmem_my_pe() == me && shmem_n_pes() == npes, "thread %d", t);
    }
    shmem_ctx_destroy(ctx);
    pthread_barrier_wait(&together);
    /* One of the threads at a time may call what all PEs take part in: not the one that initialised the library. */
    if (t == THREADS - 1) {
        shmem_barrier_all();
        void *block = shmem_malloc(100);
        CHECK(block, "thread %d", t);
        shmem_free(block);
    }
    return NULL;
}

/* Threads that begin while the PE's only one has a lock, and are gone again: what one does alone, and in company, is one lock. */
enum { VISITS = 30 };
static long visited, the_lock;

static void *visit(void *unused) {
    shmem_set_lock(&the_lock);
    shmem_long_p(&visited, shmem_long_g(&visited, 0) + 1, 0);
    shmem_clear_lock(&the_lock);
    return unused;
}

static void come_and_go(void) {
    for (int i = 0; i < VISITS; i++) {
        pthread_t visitors[2];
        shmem_set_lock(&the_lock);
        for (int v = 0; v < 2; v++) CHECK(pthread_create(&visitors[v], NULL, visit, NULL) == 0, "no thread");
        shmem_long_p(&visited, shmem_long_g(&visited, 0) + 1, 0);
        if (i % 2) sched_yield();
        shmem_clear_lock(&the_lock);
        for (int v = 0; v < 2; v++) pthread_join(visitors[v], NULL);
        visit(NULL);
    }
    shmem_barrier_all();
    if (me == 0) CHECK(visited == (long)npes * VISITS * 4, "%ld", visited);
}

int main(void) {
    int provided = -1, asked = -1;
    CHECK(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided) == 0 && provided == SHMEM_THREAD_MULTIPLE, "%d", provided);
    shmem_query_thread(&asked);
    me = shmem_my_pe();
    npes = shmem_n_pes();
    CHECK(asked == SHMEM_THREAD_MULTIPLE, "%d", asked);
    for (int t = 0; t < THREADS; t++) CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, npes, NULL, 0, &teams[t]) == 0, "team %d", t);
    if (shmem_team_n_pes(SHMEM_TEAM_SHARED) == npes) {
        shmem_team_destroy(teams[0]);
        teams[0] = SHMEM_TEAM_SHARED;
    }
    shmem_team_destroy(teams[1]);
    teams[1] = SHMEM_TEAM_WORLD;
    pthread_barrier_init(&together, NULL, THREADS);
    come_and_go();
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) pthread_create(&threads[t], NULL, work, (void *)(intptr_t)t);
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    shmem_barrier_all();
    if (me == 0) {
        CHECK(counter == (long)npes * THREADS * ROUNDS, "%ld", counter);
        for (int t = 0; t < THREADS; t++) CHECK(guarded[t] == (long)npes * (ROUNDS / 4), "%ld", guarded[t]);
    }
    return finish();
}
