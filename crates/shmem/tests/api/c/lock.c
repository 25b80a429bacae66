/* Locks: one holder at a time, who sees what the last one wrote; several at once, in static memory and in the heap. */
#include "test.h"
#include <pthread.h>

enum { LOCKS = 3, ROUNDS = 25 };
static long static_locks[LOCKS], *heap_locks;
/* Written only by who holds the lock, without atomics: a count, and the same in another place. */
static long counts[2 * LOCKS], again[2 * LOCKS];
static long inside[2 * LOCKS];
/* As `counts`, at PE 0. */
static long row;

static long *lock(int i) { return i < LOCKS ? &static_locks[i] : &heap_locks[i - LOCKS]; }

static void critical(int i, int at) {
    CHECK(shmem_long_atomic_fetch_inc(&inside[i], at) == 0, "lock %d: somebody else is inside", i);
    long count = shmem_long_g(&counts[i], at);
    CHECK(shmem_long_g(&again[i], at) == count, "lock %d: the last holder's writes", i);
    count++;
    shmem_long_p(&counts[i], count, at);
    shmem_long_put_nbi(&again[i], &count, 1, at);
    CHECK(shmem_long_atomic_fetch_add(&inside[i], -1, at) == 1, "lock %d: somebody else came in", i);
    /* Clearing completes all of it. */
    shmem_clear_lock(lock(i));
}

static void *nothing(void *it) { return it; }

/* Many turns of each PE, who comes back at once, or sleeps with the lock or without it. From the middle on, PE 1's process has had
   two threads. Gives the number of turns. */
static long turns_in_a_row(void) {
    int all_near = 1;
    for (int pe = 0; pe < npes; pe++) all_near &= shmem_ptr(&row, pe) != NULL;
    long turns = all_near ? 1500 : 25;
    for (long turn = 0; turn < turns; turn++) {
        unsigned long random = noise(me, turn, 2);
        if (turn == turns / 2 && me == 1) {
            pthread_t thread;
            CHECK(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0, "a thread");
        }
        if (random % 8 == 0) while (shmem_test_lock(lock(LOCKS + 1)) != 0) sched_yield();
        else shmem_set_lock(lock(LOCKS + 1));
        long before = shmem_long_g(&row, 0);
        if (random % 199 == 1) usleep(300);
        shmem_long_p(&row, before + 1, 0);
        shmem_clear_lock(lock(LOCKS + 1));
        if (random % 97 == 1) usleep(100);
    }
    return turns;
}

int main(void) {
    begin();
    heap_locks = (long *)shmem_calloc(LOCKS, sizeof *heap_locks);
    /* By waiting. */
    for (int round = 0; round < ROUNDS; round++) {
        int i = (int)(noise(me, round, 0) % (2 * LOCKS));
        shmem_set_lock(lock(i));
        critical(i, i % npes);
        /* All at the same one. */
        shmem_set_lock(lock(round % 2 * LOCKS));
        critical(round % 2 * LOCKS, 0);
    }
    /* By trying again and again. */
    for (int round = 0; round < ROUNDS; round++) {
        int i = (int)(noise(me, round, 1) % (2 * LOCKS));
        int answer;
        while ((answer = shmem_test_lock(lock(i))) != 0) CHECK(answer == 1, "%d", answer), sched_yield();
        critical(i, i % npes);
    }
    long in_a_row = turns_in_a_row();
    shmem_barrier_all();
    long expected[2 * LOCKS] = {0};
    for (int pe = 0; pe < npes; pe++)
        for (int round = 0; round < ROUNDS; round++) {
            expected[noise(pe, round, 0) % (2 * LOCKS)]++;
            expected[round % 2 * LOCKS]++;
            expected[noise(pe, round, 1) % (2 * LOCKS)]++;
        }
    CHECK(shmem_long_g(&row, 0) == in_a_row * npes, "%ld turns in a row, not %ld", shmem_long_g(&row, 0), in_a_row * npes);
    for (int i = 0; i < 2 * LOCKS; i++) CHECK(*lock(i) == 0, "lock %d is free, and its word %lx", i, *lock(i));
    for (int i = 0; i < 2 * LOCKS; i++) {
        long sum = shmem_long_g(&counts[i], i % npes);
        /* The common ones were counted at PE 0 in the second part of each round. */
        if (i % LOCKS == 0 && i % npes != 0) sum += shmem_long_g(&counts[i], 0);
        CHECK(sum == expected[i], "lock %d: %ld, not %ld", i, sum, expected[i]);
    }
    shmem_barrier_all();
    /* A lock that is held is not to be had; one that is free is had by one. */
    static long got;
    if (me == 0) CHECK(shmem_test_lock(lock(1)) == 0, "free");
    shmem_barrier_all();
    if (me != 0) CHECK(shmem_test_lock(lock(1)) == 1, "held");
    shmem_barrier_all();
    if (me == 0) shmem_clear_lock(lock(1));
    shmem_barrier_all();
    int mine = shmem_test_lock(lock(1)) == 0;
    if (mine) shmem_long_atomic_inc(&got, 0);
    shmem_barrier_all();
    CHECK(me != 0 || got == 1, "%ld PEs have a free lock", got);
    if (mine) shmem_clear_lock(lock(1));
    /* Several at a time, set in one order and cleared in another. */
    long before = shmem_long_g(&counts[1], 0);
    shmem_barrier_all();
    for (int i = 0; i < 2 * LOCKS; i++) shmem_set_lock(lock(i));
    shmem_long_p(&counts[1], shmem_long_g(&counts[1], 0) + 1, 0);
    for (int i = 0; i < 2 * LOCKS; i++) shmem_clear_lock(lock(i));
    shmem_barrier_all();
    CHECK(shmem_long_g(&counts[1], 0) == before + npes, "all have been through");
    shmem_barrier_all();
    shmem_free(heap_locks);
    return finish();
}
