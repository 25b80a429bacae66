/* Collectives that move elements without a look at them: broadcasts from every root, gathering of equal and of different numbers,
   all-to-all with and without strides; for every type, in teams of all kinds. */
#include "teams.h"

struct type {
    const char *name;
    size_t size;
    int (*broadcast)(shmem_team_t, void *, const void *, size_t, int);
    int (*collect)(shmem_team_t, void *, const void *, size_t);
    int (*fcollect)(shmem_team_t, void *, const void *, size_t);
    int (*alltoall)(shmem_team_t, void *, const void *, size_t);
    int (*alltoalls)(shmem_team_t, void *, const void *, ptrdiff_t, ptrdiff_t, size_t);
};

#define CALLS(ID, T, F_BROADCAST, F_COLLECT, F_FCOLLECT, F_ALLTOALL, F_ALLTOALLS) \
    static int broadcast_##ID(shmem_team_t team, void *d, const void *s, size_t n, int root) { return F_BROADCAST(team, (T *)d, (const T *)s, n, root); } \
    static int collect_##ID(shmem_team_t team, void *d, const void *s, size_t n) { return F_COLLECT(team, (T *)d, (const T *)s, n); } \
    static int fcollect_##ID(shmem_team_t team, void *d, const void *s, size_t n) { return F_FCOLLECT(team, (T *)d, (const T *)s, n); } \
    static int alltoall_##ID(shmem_team_t team, void *d, const void *s, size_t n) { return F_ALLTOALL(team, (T *)d, (const T *)s, n); } \
    static int alltoalls_##ID(shmem_team_t team, void *d, const void *s, ptrdiff_t dst, ptrdiff_t sst, size_t n) { \
        return F_ALLTOALLS(team, (T *)d, (const T *)s, dst, sst, n); \
    }
#define TYPED(N, T) CALLS(N, T, FN(N, broadcast), FN(N, collect), FN(N, fcollect), FN(N, alltoall), FN(N, alltoalls))
EACH_rma(TYPED)
CALLS(mem, void, shmem_broadcastmem, shmem_collectmem, shmem_fcollectmem, shmem_alltoallmem, shmem_alltoallsmem)
#define ROW(ID, SIZE) {#ID, SIZE, broadcast_##ID, collect_##ID, fcollect_##ID, alltoall_##ID, alltoalls_##ID},
#define ROW_TYPED(N, T) ROW(N, sizeof(T))
static const struct type types[] = {EACH_rma(ROW_TYPED) ROW(mem, 1)};
#define NTYPES ((int)(sizeof types / sizeof *types))

/* In elements: what a PE has for another, and the most that is written or read, with strides. */
enum { MOST = 40, ROOM = 17 * 8 * 5 + 64, MAX_SIZE = 16 };
static unsigned char statics[2][ROOM * MAX_SIZE] __attribute__((aligned(16))), *heap[2];
static unsigned char expected[ROOM * MAX_SIZE], block[ROOM * MAX_SIZE];

/* Fills the source array as a PE of the team has it. */
static void fill_of(unsigned char *source, const struct type *type, int pe, int round) { fill(source, ROOM * type->size, noise(pe, round, 5)); }

static void prepare(const struct team *team, const struct type *type, unsigned char *dest, unsigned char *source, int round) {
    memset(dest, GUARD, ROOM * type->size);
    memset(expected, GUARD, ROOM * type->size);
    fill_of(source, type, me, round);
    CHECK(shmem_team_sync(team->handle) == 0, "%s", team->name);
}

/* Elements `from` of a member's source array are expected at `to`. */
static void expect(const struct team *team, const struct type *type, int rank, int round, size_t to, size_t from, size_t n) {
    fill_of(block, type, team->members[rank], round);
    memcpy(expected + to * type->size, block + from * type->size, n * type->size);
}

static void moved(const struct team *team, const struct type *type, const unsigned char *dest, const char *call, size_t n) {
    CHECK(memcmp(dest, expected, ROOM * type->size) == 0, "%s %s of %zu in %s of %d", type->name, call, n, team->name, team->size);
}

static void test(const struct team *team, const struct type *type, size_t n, int round) {
    unsigned char *source = round / 2 % 2 ? heap[0] : statics[0], *dest = round / 3 % 2 ? heap[1] : statics[1];
    unsigned char *to = n ? dest : NULL, *from = n ? source : NULL;
    int root = round % team->size, size = team->size;

    prepare(team, type, dest, source, round);
    CHECK(type->broadcast(team->handle, to, from, n, root) == 0, "%s", team->name);
    expect(team, type, root, round, 0, 0, n);
    moved(team, type, dest, "broadcast", n);

    prepare(team, type, dest, source, round);
    CHECK(type->fcollect(team->handle, to, from, n) == 0, "%s", team->name);
    for (int rank = 0; rank < size; rank++) expect(team, type, rank, round, rank * n, 0, n);
    moved(team, type, dest, "fcollect", n);

    prepare(team, type, dest, source, round);
    CHECK(type->alltoall(team->handle, to, from, n) == 0, "%s", team->name);
    for (int rank = 0; rank < size; rank++) expect(team, type, rank, round, rank * n, team->rank * n, n);
    moved(team, type, dest, "alltoall", n);

    /* Each its own number of elements, some none. */
    size_t counts[MAX_PES] = {0}, at = 0;
    for (int rank = 0; rank < size; rank++) counts[rank] = n ? noise(round, rank, 0) % (n + 1) : 0;
    prepare(team, type, dest, source, round);
    CHECK(type->collect(team->handle, to, from, counts[team->rank]) == 0, "%s", team->name);
    for (int rank = 0; rank < size; at += counts[rank++]) expect(team, type, rank, round, at, 0, counts[rank]);
    moved(team, type, dest, "collect", n);

    size_t few = n > 8 ? 8 : n, dst = 1 + round % 4, sst = 1 + round / 4 % 5;
    prepare(team, type, dest, source, round);
    CHECK(type->alltoalls(team->handle, few ? dest : NULL, few ? source : NULL, dst, sst, few) == 0, "%s", team->name);
    for (int rank = 0; rank < size; rank++)
        for (size_t i = 0; i < few; i++) expect(team, type, rank, round, (rank * few + i) * dst, (team->rank * few + i) * sst, 1);
    moved(team, type, dest, "alltoalls", few);
}

/* One right after the other, each into an array of its own. */
static void back_to_back(const struct team *team) {
    enum { CALLS_IN_A_ROW = 12 };
    static uint32_t source[MAX_PES], dest[CALLS_IN_A_ROW][MAX_PES];
    for (int i = 0; i < team->size; i++) source[i] = me * 100 + i;
    memset(dest, 0, sizeof dest);
    shmem_team_sync(team->handle);
    for (int i = 0; i < CALLS_IN_A_ROW; i += 4) {
        FN(uint32, broadcast)(team->handle, dest[i], (const uint32_t *)source, 1, i % team->size);
        FN(uint32, collect)(team->handle, dest[i + 1], (const uint32_t *)source, team->rank % 2);
        FN(uint32, fcollect)(team->handle, dest[i + 2], (const uint32_t *)source, 1);
        FN(uint32, alltoall)(team->handle, dest[i + 3], (const uint32_t *)source, 1);
    }
    for (int i = 0; i < CALLS_IN_A_ROW; i += 4) {
        CHECK(dest[i][0] == team->members[i % team->size] * 100U, "broadcast in %s", team->name);
        for (int rank = 0; rank < team->size; rank++) {
            CHECK(rank % 2 == 0 || dest[i + 1][rank / 2] == team->members[rank] * 100U, "collect in %s", team->name);
            CHECK(dest[i + 2][rank] == team->members[rank] * 100U, "fcollect in %s", team->name);
            CHECK(dest[i + 3][rank] == team->members[rank] * 100U + team->rank, "alltoall in %s", team->name);
        }
    }
    shmem_team_sync(team->handle);
}

/* What is too much for anything small. */
static void large(void) {
    size_t n = 200001;
    unsigned char *source = (unsigned char *)shmem_malloc(n * npes), *dest = (unsigned char *)shmem_malloc(n * npes);
    for (int pe = 0; pe < npes; pe++) fill(source + pe * n, n, noise(me, pe, 9));
    CHECK(shmem_alltoallmem(SHMEM_TEAM_WORLD, dest, source, n) == 0, "%zu", n);
    for (int pe = 0; pe < npes; pe++) CHECK(is_filled(dest + pe * n, n, noise(pe, me, 9)), "alltoall of %zu, from %d", n, pe);
    shmem_sync_all();
    CHECK(shmem_fcollectmem(SHMEM_TEAM_WORLD, dest, source, n) == 0, "%zu", n);
    for (int pe = 0; pe < npes; pe++) CHECK(is_filled(dest + pe * n, n, noise(pe, 0, 9)), "fcollect of %zu, from %d", n, pe);
    shmem_sync_all();
    size_t mine = n / 3 * (me % 3), at = 0;
    CHECK(shmem_collectmem(SHMEM_TEAM_WORLD, dest, source, mine) == 0, "%zu", n);
    for (int pe = 0; pe < npes; at += n / 3 * (pe++ % 3)) CHECK(is_filled(dest + at, n / 3 * (pe % 3), noise(pe, 0, 9)), "collect of %zu, from %d", n, pe);
    shmem_sync_all();
    CHECK(shmem_broadcastmem(SHMEM_TEAM_WORLD, dest, source, n, npes - 1) == 0, "%zu", n);
    CHECK(is_filled(dest, n, noise(npes - 1, 0, 9)), "broadcast of %zu", n);
}

int main(void) {
    begin();
    make_teams();
    for (int i = 0; i < 2; i++) heap[i] = (unsigned char *)shmem_malloc(sizeof statics[i]);
    size_t counts[] = {1, 7, 0, MOST, 3};
    for (int t = 0; t < nteams; t++) {
        if (teams[t].rank >= 0) back_to_back(&teams[t]);
        for (int i = 0; teams[t].rank >= 0 && i < NTYPES; i++) {
            int round = t * NTYPES + i;
            if (chosen(round)) test(&teams[t], &types[i], counts[round % 5], round);
        }
        shmem_sync_all();
    }
    large();
    return finish();
}
