/* Teams: who is in them, under which number, with which parameters; and what is refused. */
#include "teams.h"

static void membership(void) {
    for (int t = 0; t < nteams; t++) {
        const struct team *team = &teams[t];
        CHECK(shmem_team_my_pe(team->handle) == team->rank, "%s", team->name);
        CHECK(shmem_team_n_pes(team->handle) == (team->rank < 0 ? -1 : team->size), "%s", team->name);
        for (int i = -2; i < MAX_PES; i++) {
            int world = i >= 0 && i < team->size && team->rank >= 0 ? team->members[i] : -1;
            CHECK(shmem_team_translate_pe(team->handle, i, SHMEM_TEAM_WORLD) == world, "%d of %s", i, team->name);
            CHECK(shmem_team_translate_pe(team->handle, i, SHMEM_TEAM_INVALID) == -1, "%d of %s", i, team->name);
            CHECK(shmem_team_translate_pe(SHMEM_TEAM_INVALID, i, team->handle) == -1, "%d of %s", i, team->name);
        }
        /* From each team to each other. */
        for (int u = 0; u < nteams && team->rank >= 0; u++) {
            const struct team *other = &teams[u];
            for (int i = 0; i < team->size; i++) {
                int expected = -1;
                for (int k = 0; k < other->size && other->rank >= 0; k++)
                    if (other->members[k] == team->members[i]) expected = k;
                CHECK(shmem_team_translate_pe(team->handle, i, other->handle) == expected, "%d of %s in %s", i, team->name, other->name);
            }
        }
        static long variable;
        variable = me;
        shmem_barrier_all();
        for (int i = 0; i < team->size && team->rank >= 0; i++) {
            long *there = (long *)shmem_team_ptr(team->handle, &variable, i);
            CHECK(!there || *there == team->members[i], "%d of %s", i, team->name);
            CHECK(there || getenv("MEMONET_FABRIC"), "%d of %s", i, team->name);
        }
        shmem_barrier_all();
    }
}

static void parameters(void) {
    shmem_team_config_t config = {5}, seen = {-1};
    shmem_team_t team;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, npes, &config, SHMEM_TEAM_NUM_CONTEXTS, &team) == 0, "a team");
    CHECK(shmem_team_get_config(team, SHMEM_TEAM_NUM_CONTEXTS, &seen) == 0 && seen.num_contexts == 5, "%d", seen.num_contexts);
    seen.num_contexts = -1;
    CHECK(shmem_team_get_config(team, 0, &seen) == 0 && seen.num_contexts == -1, "nothing is asked for");
    CHECK(shmem_team_get_config(team, 0, NULL) == 0, "nothing is asked for");
    CHECK(shmem_team_get_config(SHMEM_TEAM_INVALID, SHMEM_TEAM_NUM_CONTEXTS, &seen) != 0 && seen.num_contexts == -1, "no team");
    CHECK(shmem_team_get_config(SHMEM_TEAM_WORLD, SHMEM_TEAM_NUM_CONTEXTS, &seen) == 0 && seen.num_contexts >= 0, "the world");
    CHECK(shmem_team_get_config(SHMEM_TEAM_SHARED, SHMEM_TEAM_NUM_CONTEXTS, &seen) == 0 && seen.num_contexts >= 0, "shared memory");
    shmem_team_destroy(team);
    /* What the mask leaves out does not count. */
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, npes, &config, 0, &team) == 0, "a team");
    CHECK(shmem_team_get_config(team, SHMEM_TEAM_NUM_CONTEXTS, &seen) == 0 && seen.num_contexts == 0, "%d", seen.num_contexts);
    shmem_team_destroy(team);
    shmem_team_config_t other = {7};
    shmem_team_t row, column;
    CHECK(shmem_team_split_2d(SHMEM_TEAM_WORLD, 2, &config, SHMEM_TEAM_NUM_CONTEXTS, &row, &other, SHMEM_TEAM_NUM_CONTEXTS, &column) == 0, "rows");
    CHECK(shmem_team_get_config(row, SHMEM_TEAM_NUM_CONTEXTS, &seen) == 0 && seen.num_contexts == 5, "%d", seen.num_contexts);
    CHECK(shmem_team_get_config(column, SHMEM_TEAM_NUM_CONTEXTS, &seen) == 0 && seen.num_contexts == 7, "%d", seen.num_contexts);
    shmem_team_destroy(row);
    shmem_team_destroy(column);
}

/* All of these are told by all PEs alike, and by a result other than 0, not by a hang. */
static void refused(void) {
    struct { int start, stride, size; } triplets[] = {
        {-1, 1, 1}, {npes, 1, 1}, {0, 1, npes + 1}, {0, 1, 0}, {0, 1, -1}, {npes - 1, 1, 2}, {0, -1, 2}, {0, npes, 2}, {0, 0, 2},
        {0, 1 << 30, 3}, {1 << 30, 1, 1}, {0, 1, 1 << 30}, {0, -(1 << 30), 4},
    };
    for (int i = 0; i < 13; i++) {
        shmem_team_t team = SHMEM_TEAM_WORLD;
        int result = shmem_team_split_strided(SHMEM_TEAM_WORLD, triplets[i].start, triplets[i].stride, triplets[i].size, NULL, 0, &team);
        CHECK(result != 0 && team == SHMEM_TEAM_INVALID, "%d %d %d", triplets[i].start, triplets[i].stride, triplets[i].size);
    }
    shmem_team_t team = SHMEM_TEAM_WORLD, other = SHMEM_TEAM_WORLD;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_INVALID, 0, 1, 1, NULL, 0, &team) != 0 && team == SHMEM_TEAM_INVALID, "no parent");
    team = SHMEM_TEAM_WORLD;
    CHECK(shmem_team_split_2d(SHMEM_TEAM_INVALID, 1, NULL, 0, &team, NULL, 0, &other) != 0, "no parent");
    CHECK(team == SHMEM_TEAM_INVALID && other == SHMEM_TEAM_INVALID, "no parent");
    int widths[] = {0, -1};
    for (int i = 0; i < 2; i++) {
        team = other = SHMEM_TEAM_WORLD;
        CHECK(shmem_team_split_2d(SHMEM_TEAM_WORLD, widths[i], NULL, 0, &team, NULL, 0, &other) != 0, "%d columns", widths[i]);
        CHECK(team == SHMEM_TEAM_INVALID && other == SHMEM_TEAM_INVALID, "%d columns", widths[i]);
    }
    shmem_team_destroy(SHMEM_TEAM_INVALID);
    CHECK(shmem_team_my_pe(SHMEM_TEAM_INVALID) == -1 && shmem_team_n_pes(SHMEM_TEAM_INVALID) == -1, "no team");
    if (getenv("MEMONET_CHECK")) return;
    CHECK(shmem_team_sync(SHMEM_TEAM_INVALID) != 0 && shmem_sync(SHMEM_TEAM_INVALID) != 0, "no team");
    CHECK(shmem_int_sum_reduce(SHMEM_TEAM_INVALID, NULL, NULL, 0) != 0, "no team");
    CHECK(shmem_int_sum_inscan(SHMEM_TEAM_INVALID, NULL, NULL, 0) != 0, "no team");
    CHECK(shmem_broadcastmem(SHMEM_TEAM_INVALID, NULL, NULL, 0, 0) != 0 && shmem_collectmem(SHMEM_TEAM_INVALID, NULL, NULL, 0) != 0, "no team");
    CHECK(shmem_fcollectmem(SHMEM_TEAM_INVALID, NULL, NULL, 0) != 0 && shmem_alltoallmem(SHMEM_TEAM_INVALID, NULL, NULL, 0) != 0, "no team");
    CHECK(shmem_alltoallsmem(SHMEM_TEAM_INVALID, NULL, NULL, 1, 1, 0) != 0, "no team");
}

/* More teams than can be at one time come and go. */
static void many(void) {
    for (int i = 0; i < 700; i++) {
        shmem_team_t team, within;
        int size = 1 + i % npes;
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, npes - size, 1, size, NULL, 0, &team) == 0, "team %d", i);
        CHECK((team == SHMEM_TEAM_INVALID) == (me < npes - size), "team %d", i);
        if (team == SHMEM_TEAM_INVALID) continue;
        CHECK(shmem_team_split_strided(team, 0, 1, 1, NULL, 0, &within) == 0, "team %d", i);
        CHECK(shmem_team_n_pes(team) == size && shmem_team_my_pe(team) == me - (npes - size), "team %d", i);
        shmem_team_sync(team);
        if (within != SHMEM_TEAM_INVALID) shmem_team_destroy(within);
        shmem_team_destroy(team);
    }
}

/* Teams within teams until there are no more: that is told by a result, whatever is asked for; and all of them come back, in whatever order
   they go. */
static void run_out(void) {
    enum { MORE = 300 };
    static shmem_team_t deep[MORE];
    for (int round = 0; round < 3; round++) {
        int n = 0, last;
        shmem_team_t row, column;
        while (n < MORE && shmem_team_split_strided(n ? deep[n - 1] : SHMEM_TEAM_WORLD, 0, 1, npes, NULL, 0, &deep[n]) == 0) n++;
        CHECK(n > 100 && n < MORE && deep[n] == SHMEM_TEAM_INVALID, "%d teams", n);
        /* With room for one, there is none for two, and that one is not lost. */
        shmem_team_destroy(deep[--n]);
        for (int i = 0; i < 3; i++) {
            CHECK(shmem_team_split_2d(SHMEM_TEAM_WORLD, 2, NULL, 0, &row, NULL, 0, &column) != 0, "rows and columns");
            CHECK(row == SHMEM_TEAM_INVALID && column == SHMEM_TEAM_INVALID, "rows and columns");
        }
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, npes - 1, -1, npes, NULL, 0, &row) == 0, "the last one");
        shmem_team_destroy(row);
        static long mine, sum;
        mine = me;
        CHECK(shmem_long_sum_reduce(deep[n - 1], &sum, &mine, 1) == 0 && sum == (long)npes * (npes - 1) / 2, "the deepest one");
        for (last = 0; last < n; last += 2) shmem_team_destroy(deep[round == 1 ? n - 1 - last : last]);
        for (last = 1; last < n; last += 2) {
            CHECK(shmem_team_sync(deep[round == 1 ? n - 1 - last : last]) == 0, "one that is left");
            shmem_team_destroy(deep[round == 1 ? n - 1 - last : last]);
        }
    }
}

/* A team does what the world does not wait for, and the other way round. */
static void syncs_are_of_members(void) {
    static long arrived;
    const struct team *even = &teams[3];
    for (int i = 1; i <= 20; i++) {
        if (even->rank < 0) continue;
        long before = shmem_long_atomic_fetch_inc(&arrived, even->members[0]);
        CHECK(before >= (long)(i - 1) * even->size && before < (long)i * even->size, "round %d", i);
        shmem_sync(even->handle);
        CHECK(shmem_long_atomic_fetch(&arrived, even->members[0]) >= (long)i * even->size, "round %d", i);
    }
    shmem_barrier_all();
}

int main(void) {
    begin();
    make_teams();
    membership();
    parameters();
    refused();
    many();
    run_out();
    syncs_are_of_members();
    /* In any order; those that are left end with the library. */
    for (int t = 2; t < nteams; t += 2)
        if (teams[t].handle != SHMEM_TEAM_INVALID) shmem_team_destroy(teams[t].handle);
    CHECK(shmem_team_sync(SHMEM_TEAM_WORLD) == 0, "the world is still there");
    return finish();
}
