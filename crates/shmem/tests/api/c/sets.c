/* Active sets that share members, in random order, each made where it is first used, with no meeting of all in between. SEED makes it
   another program. */
#include "test.h"

enum { STEPS = 250, RING = 8, MOST = 17 * 6 };
static long psync[SHMEM_SYNC_SIZE], work[SHMEM_REDUCE_MIN_WRKDATA_SIZE], source[RING][MOST], dest[RING][MOST];

/* What a PE has at a place in a step. */
static long have(int pe, int step, int i) { return (long)(noise(pe, step, i) >> 30); }

/* A member of the set, by its rank. */
#define MEMBER(rank) (start + ((rank) << log_stride))
#define SET start, log_stride, size

static void step_of(int step, uint64_t random, int start, int log_stride, int size, int rank) {
    int root = (int)((random >> 30) % size), n = (int)((random >> 40) % 6), at = 0;
    long *from = source[step % RING], *to = dest[step % RING];
    for (int i = 0; i < MOST; i++) from[i] = have(me, step, i), to[i] = -1;
    shmem_sync(SET, psync);
    switch ((random >> 50) % 6) {
    case 0: shmem_barrier(SET, psync); break;
    case 1:
        shmem_broadcast64(to, from, n, root, SET, psync);
        for (int i = 0; i < n; i++) CHECK(to[i] == (rank == root ? -1 : have(MEMBER(root), step, i)), "broadcast, step %d, set %d %d %d", step, SET);
        break;
    case 2:
        shmem_fcollect64(to, from, n, SET, psync);
        for (int i = 0; i < n * size; i++) CHECK(to[i] == have(MEMBER(i / n), step, i % n), "fcollect, step %d, set %d %d %d", step, SET);
        break;
    case 3:
        shmem_collect64(to, from, (n + rank) % 4, SET, psync);
        for (int other = 0; other < size; other++)
            for (int i = 0; i < (n + other) % 4; i++, at++) CHECK(to[at] == have(MEMBER(other), step, i), "collect, step %d, set %d %d %d", step, SET);
        break;
    case 4:
        shmem_long_sum_to_all(to, from, n, SET, work, psync);
        for (int i = 0; i < n; i++) {
            long sum = 0;
            for (int other = 0; other < size; other++) sum += have(MEMBER(other), step, i);
            CHECK(to[i] == sum, "sum, step %d, set %d %d %d", step, SET);
        }
        break;
    case 5:
        shmem_alltoall64(to, from, n, SET, psync);
        for (int i = 0; i < n * size; i++) CHECK(to[i] == have(MEMBER(i / n), step, rank * n + i % n), "alltoall, step %d, set %d %d %d", step, SET);
        break;
    }
    /* Whoever was in this set may be written to by the next one's members. */
    shmem_sync(SET, psync);
}

int main(void) {
    begin();
    for (int step = 0; step < STEPS; step++) {
        uint64_t random = noise(seed, step, 50);
        int log_stride = (int)(random % 3), start = (int)((random >> 8) % npes), most = ((npes - 1 - start) >> log_stride) + 1;
        int size = 1 + (int)((random >> 20) % most), rank = (me - start) >> log_stride;
        if (me >= start && MEMBER(rank) == me && rank < size) step_of(step, random, start, log_stride, size, rank);
    }
    return finish();
}
