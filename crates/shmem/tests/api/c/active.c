/* Deprecated collectives of active sets. Their work arrays are as small as the constants say, with guards around that stay. */
#include "test.h"

enum { MAX_PES = 20, ROOM = 17 * 6 * 3 + 40, MAX_SIZE = 16 };

/* A first PE, the logarithm of a stride, and how many. */
struct set {
    int start, log_stride, size;
};
static struct set set;
static int rank;

static long guarded[6][3];
static long *psync;
#define SET set.start, set.log_stride, set.size

/* Work arrays in turn, as nobody may use one that others still use. */
static void next_psync(void) {
    static int turn;
    for (int i = 0; i < 6; i++) {
        CHECK(guarded[i][0] == 77 && guarded[i][1] == SHMEM_SYNC_VALUE && guarded[i][2] == 77, "psync is as it was");
    }
    psync = &guarded[turn++ % 6][1];
}

static int member(int i) { return set.start + (i << set.log_stride); }

/* Movers, for elements of 32 and 64 bits. */
#define MOVERS(BITS, T) \
    static void movers_##BITS(T *dest, T *source, int round) { \
        T expected[ROOM]; \
        size_t n = round % 4 == 3 ? 0 : 1 + round % 6, bytes = sizeof expected; \
        int root = round % set.size; \
        for (int i = 0; i < ROOM; i++) source[i] = (T)noise(me, round, i); \
        for (int call = 0; call < 5; call++) { \
            size_t count = call == 0 && round % 5 == 2 ? ROOM : n; /* More than goes by a buffer. */ \
            memset(dest, GUARD, bytes); \
            memset(expected, GUARD, bytes); \
            next_psync(); \
            shmem_sync(SET, psync); \
            next_psync(); \
            size_t at = 0; \
            switch (call) { \
            case 0: shmem_broadcast##BITS(count ? dest : NULL, count ? source : NULL, count, root, SET, psync); break; \
            case 1: shmem_fcollect##BITS(n ? dest : NULL, n ? source : NULL, n, SET, psync); break; \
            case 2: shmem_collect##BITS(dest, source, (n + rank) % 4, SET, psync); break; \
            case 3: shmem_alltoall##BITS(n ? dest : NULL, n ? source : NULL, n, SET, psync); break; \
            case 4: shmem_alltoalls##BITS(n ? dest : NULL, n ? source : NULL, 3, 2, n, SET, psync); break; \
            } \
            for (int from = 0; from < set.size; from++) { \
                size_t many = call == 2 ? (n + from) % 4 : count; \
                if (call == 0 && (from != root || rank == root)) continue; \
                for (size_t i = 0; i < many; i++) { \
                    size_t theirs = call == 3 ? rank * n + i : call == 4 ? (rank * n + i) * 2 : i; \
                    size_t mine = call == 4 ? (from * n + i) * 3 : call == 0 ? i : at + i; \
                    expected[mine] = (T)noise(member(from), round, theirs); \
                } \
                at += many; \
            } \
            CHECK(memcmp(dest, expected, bytes) == 0, "call %d of %d bits, %zu elements, set %d %d %d", call, BITS, count, SET); \
            next_psync(); \
            shmem_barrier(SET, psync); \
        } \
    }
MOVERS(32, uint32_t)
MOVERS(64, uint64_t)

#define COMBINE_prod(a, b) (a) * (b)
#define COMBINE_sum(a, b) (a) + (b)
#define COMBINE_max(a, b) (a) > (b) ? (a) : (b)
#define COMBINE_min(a, b) (a) < (b) ? (a) : (b)
#define COMBINE_and(a, b) (a) & (b)
#define COMBINE_or(a, b) (a) | (b)
#define COMBINE_xor(a, b) (a) ^ (b)

/* Small numbers that are not 0: whatever is done with them is exact. */
#define SMALL(N, pe, i) value_##N(0) + (1 + (int)(noise(pe, i, 4) % 3)) * (noise(pe, i, 5) % 2 ? 1 : -1)

#define TO_ALL(O, N, T) \
    static void O##_##N(T *dest, T *source, int round) { \
        int n = round % 5 == 4 ? 0 : 1 + round % 7, in_place = round % 2; \
        T *to = in_place ? source : dest; \
        for (int i = 0; i < ROOM; i++) source[i] = SMALL(N, me, round + i), dest[i] = 0; \
        static struct { uint64_t before; T work; uint64_t after; } guard = {77, 0, 77}; \
        next_psync(); \
        shmem_sync(SET, psync); \
        next_psync(); \
        shmem_##N##_##O##_to_all(n ? to : NULL, n ? source : NULL, n, SET, &guard.work, psync); \
        CHECK(guard.before == 77 && guard.after == 77, #N " " #O); \
        for (int i = 0; i < n; i++) { \
            T expected = SMALL(N, member(0), round + i); \
            for (int from = 1; from < set.size; from++) { \
                T other = SMALL(N, member(from), round + i); \
                expected = COMBINE_##O(expected, other); \
            } \
            CHECK(to[i] == expected, #N " " #O " %d of %d, set %d %d %d", i, n, SET); \
        } \
        for (int i = n; i < ROOM; i++) CHECK(to[i] == (in_place ? SMALL(N, me, round + i) : (T)0), #N " " #O); \
    }
EACH_to_all(TO_ALL)

static unsigned char statics[2][ROOM * MAX_SIZE] __attribute__((aligned(16))), *heap[2];

/* A PE calls for a set that it is not in: nothing happens to its memory, and nobody waits. */
static void strangers(long *dest, long *source) {
    for (int i = 0; i < 20; i++) dest[i] = -1, source[i] = me;
    shmem_barrier_all();
    set.start = set.log_stride = 0, set.size = 1 + npes / 2;
    static long work[SHMEM_REDUCE_MIN_WRKDATA_SIZE];
    next_psync();
    shmem_barrier(SET, psync);
    next_psync();
    shmem_broadcast64(dest, source, 1, 0, SET, psync);
    next_psync();
    shmem_long_sum_to_all(dest + 1, source, 1, SET, work, psync);
    int in = me < set.size;
    CHECK(dest[0] == (in && me ? 0 : -1) && dest[1] == (in ? set.size * (set.size - 1L) / 2 : -1), "%ld %ld", dest[0], dest[1]);
    shmem_barrier_all();
}

int main(void) {
    begin();
    for (int i = 0; i < 2; i++) heap[i] = (unsigned char *)shmem_malloc(sizeof statics[i]);
    for (int i = 0; i < 6; i++) guarded[i][0] = guarded[i][2] = 77, guarded[i][1] = SHMEM_SYNC_VALUE;
    struct set sets[] = {
        {0, 0, npes}, {0, 1, (npes + 1) / 2}, {1, 1, npes / 2}, {npes / 2, 0, npes - npes / 2}, {npes - 1, 0, 1}, {0, 2, (npes + 3) / 4}, {npes / 3, 1, (npes - npes / 3 + 1) / 2},
    };
    for (int s = 0; s < 7; s++) {
        set = sets[s];
        rank = -1;
        for (int i = 0; i < set.size; i++)
            if (member(i) == me) rank = i;
        shmem_barrier_all();
        int round = 0;
#define PLACE(T, i) (T *)(round / (i + 1) % 2 ? heap[i] : statics[i])
#define RUN(O, N, T) O##_##N(PLACE(T, 0), PLACE(T, 1), round); round++;
        for (; rank >= 0 && round < 24; round++) {
            movers_32(PLACE(uint32_t, 0), PLACE(uint32_t, 1), round);
            movers_64(PLACE(uint64_t, 0), PLACE(uint64_t, 1), round);
        }
        if (rank >= 0) {
            EACH_to_all(RUN)
        }
    }
    if (!getenv("MEMONET_CHECK")) strangers((long *)heap[0], (long *)heap[1]);
    return finish();
}
