/* Collectives of all kinds and sizes, in random order and in teams that share members, one right after the other; among them puts
   and atomics whose targets are in the middle of something else. SEED makes it another program. */
#include "teams.h"

enum { STEPS = 400, RING = 16, MOST = 3000 };
static long source[RING][MOST], dest[RING][MOST];
static long mailbox[MAX_PES][RING], count;

/* What a PE has at a place in a step. */
static long have(int pe, int step, size_t i) { return (long)(noise(pe, step, i + 7) >> 20); }

static void check(const struct team *team, const char *call, int step, const long *at, size_t n, int from, size_t theirs) {
    for (size_t i = 0; i < n; i++)
        CHECK(at[i] == have(from, step, theirs + i), "%s of %zu in %s, step %d, element %zu from %d", call, n, team->name, step, i, from);
}

static void collective(const struct team *team, int step, uint64_t random) {
    long *from = source[step % RING], *to = dest[step % RING];
    size_t room = MOST / MAX_PES, n = random >> 8 & 1 ? random >> 9 & 3 : (random >> 9) % (room + 1);
    int root = (int)((random >> 20) % team->size), size = team->size;
    shmem_team_t handle = team->handle;
    for (size_t i = 0; i < MOST; i++) from[i] = have(me, step, i);
    switch (random % 8) {
    case 0: shmem_team_sync(handle); break;
    case 1:
        shmem_long_broadcast(handle, to, from, 10 * n, root);
        check(team, "broadcast", step, to, 10 * n, team->members[root], 0);
        break;
    case 2: {
        size_t at = 0;
        shmem_long_collect(handle, to, from, (n + team->rank * 5) % (room + 1));
        for (int rank = 0; rank < size; rank++) {
            size_t many = (n + rank * 5) % (room + 1);
            check(team, "collect", step, to + at, many, team->members[rank], 0);
            at += many;
        }
        break;
    }
    case 3:
        shmem_long_fcollect(handle, to, from, n);
        for (int rank = 0; rank < size; rank++) check(team, "fcollect", step, to + rank * n, n, team->members[rank], 0);
        break;
    case 4:
        shmem_long_alltoall(handle, to, from, n);
        for (int rank = 0; rank < size; rank++) check(team, "alltoall", step, to + rank * n, n, team->members[rank], team->rank * n);
        break;
    case 5:
        n = n > room / 3 ? room / 3 : n;
        shmem_long_alltoalls(handle, to, from, 2, 3, n);
        for (int rank = 0; rank < size; rank++)
            for (size_t i = 0; i < n; i++)
                check(team, "alltoalls", step, to + (rank * n + i) * 2, 1, team->members[rank], (team->rank * n + i) * 3);
        break;
    default: {
        /* In place, in every second case. */
        long *in = random >> 30 & 1 ? from : to;
        int last = random % 8 == 6 ? size : team->rank + 1;
        if (random % 8 == 6) shmem_long_sum_reduce(handle, in, from, 10 * n);
        else shmem_long_sum_inscan(handle, in, from, 10 * n);
        for (size_t i = 0; i < 10 * n; i++) {
            long sum = 0;
            for (int rank = 0; rank < last; rank++) sum += have(team->members[rank], step, i);
            CHECK(in[i] == sum, "sum of %zu in %s, step %d, element %zu", 10 * n, team->name, step, i);
        }
    }
    }
}

int main(void) {
    begin();
    make_teams();
    long sent = 0;
    for (int step = 0; step < STEPS; step++) {
        uint64_t random = noise(seed, step, 99);
        const struct team *team = &teams[(random >> 40) % nteams];
        if (team->rank >= 0) collective(team, step, random);
        /* Everybody counts at everybody's, whatever those do. */
        shmem_long_atomic_inc(&count, (me + step) % npes);
        shmem_long_p(&mailbox[me][step % RING], step, (me + step) % npes);
        sent++;
        /* Arrays are used again. The others may write to them as soon as these call, so all are cleared before anybody does. */
        if (step % RING == RING - 1) {
            shmem_barrier_all();
            CHECK(shmem_long_atomic_fetch(&count, me) == sent, "step %d", step);
            for (int pe = 0; pe < npes; pe++)
                for (int i = 0; i < RING; i++) {
                    int then = step - step % RING + i;
                    CHECK((pe + then) % npes != me || mailbox[pe][i] == then, "from %d, step %d", pe, then);
                }
            memset(dest, 0, sizeof dest);
            shmem_barrier_all();
        }
    }
    return finish();
}
