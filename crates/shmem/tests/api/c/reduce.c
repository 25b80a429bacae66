/* Reductions and scans: every operator of every type, in teams of all kinds, in place and not, one right after the other; against
   the operators of C, applied in the order of the PEs. Numbers are such that no rounding occurs, in their own type only. */
#include "teams.h"

/* What the product of up to 32 of is exact and not 0: odd integers; signs and powers of 2, and one number that needs all bits. */
#define INTEGER_FACTOR(N, T) static T factor_##N(uint64_t x, int pe) { return (T)(x | 1 | (uint64_t)(pe & 0)); }
#define REAL_FACTOR(N, T) \
    static T factor_##N(uint64_t x, int pe) { \
        int bits = sizeof(T) == 4 ? 24 : sizeof(T) == 8 ? 53 : 64; \
        T tiny = 1; \
        for (int i = 1; i < bits; i++) tiny /= 2; \
        T factor = x & 1 ? 2 : x & 2 ? (T)0.5 : 1; \
        if (pe == 0) factor += tiny * factor; \
        return x & 4 ? -factor : factor; \
    }
#define COMPLEX_FACTOR(N, T) \
    static T factor_##N(uint64_t x, int pe) { \
        T factor = value_##N(0); \
        if (x & 1) __real__ factor = x & 4 ? 1 : -1; \
        if (x & 2 || !(x & 1)) __imag__ factor = x & 8 ? 1 : -1; \
        return pe == 0 ? factor * 3 : factor; \
    }
EACH_TYPE(INTEGER_FACTOR, REAL_FACTOR, COMPLEX_FACTOR)

#define FILL_prod(N, x, pe) factor_##N(x, pe)
#define FILL_sum(N, x, pe) value_##N(x)
#define FILL_max(N, x, pe) value_##N(x)
#define FILL_min(N, x, pe) value_##N(x)
#define FILL_and(N, x, pe) value_##N(x | noise(x, pe, 8))
#define FILL_or(N, x, pe) value_##N(x & noise(x, pe, 8))
#define FILL_xor(N, x, pe) value_##N(x)
#define COMBINE_prod(a, b) (a) * (b)
#define COMBINE_sum(a, b) (a) + (b)
#define COMBINE_max(a, b) (a) > (b) ? (a) : (b)
#define COMBINE_min(a, b) (a) < (b) ? (a) : (b)
#define COMBINE_and(a, b) (a) & (b)
#define COMBINE_or(a, b) (a) | (b)
#define COMBINE_xor(a, b) (a) ^ (b)

enum goal { REDUCE, INSCAN, EXSCAN };

struct operation {
    const char *name;
    size_t size;
    enum goal goal;
    int (*call)(shmem_team_t, void *, const void *, size_t);
    void (*fill)(void *, size_t, int, int);
    void (*combine)(void *, const void *, size_t);
    int (*same)(const void *, const void *, size_t);
};

#define MODEL(O, N, T) \
    static void fill_##O##_##N(void *at, size_t n, int pe, int round) { \
        for (size_t i = 0; i < n; i++) ((T *)at)[i] = FILL_##O(N, noise(pe, round, i), pe); \
    } \
    static void combine_##O##_##N(void *into, const void *with, size_t n) { \
        for (size_t i = 0; i < n; i++) ((T *)into)[i] = (T)(COMBINE_##O(((T *)into)[i], ((const T *)with)[i])); \
    } \
    static int same_##O##_##N(const void *a, const void *b, size_t n) { \
        for (size_t i = 0; i < n; i++) \
            if (((const T *)a)[i] != ((const T *)b)[i]) return 0; \
        return 1; \
    }
#define CALL(KIND, O, N, T) \
    static int O##_##KIND##_##N(shmem_team_t team, void *d, const void *s, size_t n) { \
        return FN(N, O##_##KIND)(team, (T *)d, (const T *)s, n); \
    }
#define OF_REDUCE(O, N, T) MODEL(O, N, T) CALL(reduce, O, N, T)
#define OF_SCAN(O, N, T) CALL(inscan, O, N, T) CALL(exscan, O, N, T)
EACH_reduce(OF_REDUCE)
EACH_scan(OF_SCAN)

#define ROW(KIND, GOAL, O, N, T) {#N "_" #O "_" #KIND, sizeof(T), GOAL, O##_##KIND##_##N, fill_##O##_##N, combine_##O##_##N, same_##O##_##N},
#define ROW_REDUCE(O, N, T) ROW(reduce, REDUCE, O, N, T)
#define ROW_SCAN(O, N, T) ROW(inscan, INSCAN, O, N, T) ROW(exscan, EXSCAN, O, N, T)
static const struct operation operations[] = {EACH_reduce(ROW_REDUCE) EACH_scan(ROW_SCAN)};
#define NOPERATIONS ((int)(sizeof operations / sizeof *operations))

/* Calls that follow each other use different arrays, and after so many all members meet. */
enum { RING = 8, ROOM = 1000, MAX_SIZE = 16 };
static unsigned char statics[2][RING][ROOM * MAX_SIZE] __attribute__((aligned(16)));
static unsigned char (*heap[2])[ROOM * MAX_SIZE];

static void check(const struct operation *of, const struct team *team, const void *dest, size_t n, int round) {
    static unsigned char expected[ROOM * MAX_SIZE] __attribute__((aligned(16))), next[ROOM * MAX_SIZE] __attribute__((aligned(16)));
    int last = of->goal == REDUCE ? team->size : of->goal == INSCAN ? team->rank + 1 : team->rank;
    memset(expected, 0, n * of->size);
    for (int rank = 0; rank < last; rank++) {
        of->fill(rank ? next : expected, n, team->members[rank], round);
        if (rank) of->combine(expected, next, n);
    }
    CHECK(of->same(dest, expected, n), "%s of %zu in %s of %d", of->name, n, team->name, team->size);
}

int main(void) {
    begin();
    make_teams();
    for (int i = 0; i < 2; i++) {
        heap[i] = (unsigned char(*)[ROOM * MAX_SIZE])shmem_malloc(sizeof statics[i]);
    }
    size_t counts[] = {1, 3, 0, 64, 7, 129, 1000};
    for (int t = 0; t < nteams; t++) {
        const struct team *team = &teams[t];
        for (int i = 0; team->rank >= 0 && i < NOPERATIONS; i++) {
            const struct operation *of = &operations[i];
            int round = t * NOPERATIONS + i, ring = i % RING, in_place = round / 3 % 2;
            if (every > 1 && !chosen(round)) continue;
            size_t n = counts[round % 7];
            unsigned char *source = round / 2 % 2 ? heap[0][ring] : statics[0][ring], *dest = in_place ? source : round / 5 % 2 ? heap[1][ring] : statics[1][ring];
            of->fill(source, n, me, round);
            if (!in_place) memset(dest, GUARD, ROOM * of->size);
            if (ring == 0 || every > 1) CHECK(shmem_team_sync(team->handle) == 0, "%s", team->name);
            CHECK(of->call(team->handle, n ? dest : NULL, n ? source : NULL, n) == 0, "%s", of->name);
            check(of, team, dest, n, round);
            if (!in_place) CHECK(is_guard(dest + n * of->size, (ROOM - n) * of->size), "%s of %zu", of->name, n);
        }
        shmem_sync_all();
    }
    /* Some that do not fit into anything small. */
    size_t n = 60000;
    long double *large = (long double *)shmem_malloc(2 * n * sizeof *large);
    for (size_t i = 0; i < n; i++) large[i] = i + me + (me == 0 ? 1.0L / (1L << 40) : 0);
    CHECK(FN(longdouble, sum_reduce)(SHMEM_TEAM_WORLD, large + n, (const long double *)large, n) == 0, "%zu", n);
    for (size_t i = 0; i < n; i++)
        CHECK(large[n + i] == (long double)npes * i + npes * (npes - 1) / 2 + 1.0L / (1L << 40), "element %zu", i);
    return finish();
}
