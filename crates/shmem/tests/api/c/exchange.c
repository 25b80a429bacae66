/* All-to-alls and fcollects of all sizes, one right after the other, by the least that the standard asks of a program: destinations are
   cleared before a barrier, after which nobody waits for anybody else; there is one source, written anew as soon as a call is over. */
#include "test.h"

enum { ROUNDS = 100, CALLS = 12, MAX_PES = 20, MOST = 24 << 10 };
static unsigned char *source, *dest[CALLS];

struct call {
    int is_fcollect;
    /* For each. */
    size_t bytes;
};

/* From what a step carries to what is written straight into its place, and what lies around the limits between. */
static struct call call_of(int round, int i) {
    uint64_t random = noise(seed, round * CALLS + i, 11), odd = random >> 32;
    size_t limits[] = {8, 64, 1024 / npes, 1024, 4096, MOST};
    struct call call = {(int)(random & 1), 0};
    size_t limit = limits[(random >> 8) % 6];
    call.bytes = random >> 16 & 1 ? odd % (limit + 1) : limit - 2 + odd % 4;
    if (call.bytes > MOST) call.bytes = MOST;
    return call;
}

static uint64_t salt(int pe, int round, int i) { return noise(pe, round * CALLS + i, 12); }

/* What the others had is there, and nothing behind it. Two parts of a source begin differently. */
static void check(int round, int i, const char *when) {
    struct call call = call_of(round, i);
    for (int pe = 0; pe < npes; pe++) {
        uint64_t theirs = salt(pe, round, i) + (call.is_fcollect ? 0 : (uint64_t)me);
        CHECK(is_filled(dest[i] + pe * call.bytes, call.bytes, theirs), "%s of %zu, round %d, call %d, from %d, %s",
            call.is_fcollect ? "fcollect" : "alltoall", call.bytes, round, i, pe, when);
    }
    CHECK(is_guard(dest[i] + npes * call.bytes, 64), "round %d, call %d: what lies behind, %s", round, i, when);
}

int main(void) {
    begin();
    CHECK(npes <= MAX_PES, "too many PEs for this program");
    size_t room = (size_t)MOST * npes + 64;
    source = (unsigned char *)shmem_malloc(room);
    for (int i = 0; i < CALLS; i++) dest[i] = (unsigned char *)shmem_malloc(room);
    for (int round = 0; round < ROUNDS; round++) {
        if (!chosen(round)) continue;
        int calls = 1 + (int)(noise(seed, round, 13) % CALLS);
        for (int i = 0; i < calls; i++) memset(dest[i], GUARD, npes * call_of(round, i).bytes + 64);
        if (round % 2) shmem_sync_all();
        else shmem_barrier_all();
        for (int i = 0; i < calls; i++) {
            struct call call = call_of(round, i);
            int parts = call.is_fcollect ? 1 : npes;
            for (int pe = 0; pe < parts; pe++) fill(source + pe * call.bytes, call.bytes, salt(me, round, i) + pe);
            if (call.is_fcollect) shmem_fcollectmem(SHMEM_TEAM_WORLD, dest[i], source, call.bytes);
            else shmem_alltoallmem(SHMEM_TEAM_WORLD, dest[i], source, call.bytes);
            memset(source, ~GUARD, parts * call.bytes);
            /* Some are late. */
            if (noise(me, round * CALLS + i, 14) % 2) check(round, i, "at once");
        }
        for (int i = 0; i < calls; i++) check(round, i, "later");
    }
    return finish();
}
