/* Contexts: made, told apart, destroyed; and that PE numbers are those of the context's team. */
#include "teams.h"

static long inbox[MAX_PES], counter;

/* Every member puts its rank into every member's inbox, adds to the counter of each, and reads it back. */
static void numbering(const struct team *team, long options) {
    shmem_ctx_t ctx;
    shmem_team_t of = SHMEM_TEAM_INVALID;
    CHECK(shmem_team_create_ctx(team->handle, options, &ctx) == 0 && ctx != SHMEM_CTX_INVALID, "%s", team->name);
    CHECK(shmem_ctx_get_team(ctx, &of) == 0 && of == team->handle, "%s", team->name);
    for (int i = 0; i < MAX_PES; i++) inbox[i] = -1;
    counter = 0;
    shmem_team_sync(team->handle);
    for (int i = 0; i < team->size; i++) {
        shmem_ctx_long_p(ctx, &inbox[team->rank], me, i);
        shmem_ctx_long_atomic_add(ctx, &counter, team->rank + 1, i);
    }
    shmem_ctx_quiet(ctx);
    shmem_team_sync(team->handle);
    for (int i = 0; i < MAX_PES; i++) CHECK(inbox[i] == (i < team->size ? team->members[i] : -1), "%d of %s", i, team->name);
    CHECK(counter == team->size * (team->size + 1) / 2, "%s", team->name);
    for (int i = 0; i < team->size; i++) CHECK(shmem_ctx_long_g(ctx, &inbox[team->rank], i) == me, "%d of %s", i, team->name);
    shmem_team_sync(team->handle);
    shmem_ctx_destroy(ctx);
}

/* What was sent is complete when a context is destroyed. */
static void destroyed_is_complete(void) {
    int next = (me + 1) % npes;
    for (long round = 1; round <= 30; round++) {
        shmem_ctx_t ctx;
        CHECK(shmem_ctx_create(0, &ctx) == 0, "round %ld", round);
        shmem_ctx_long_put_nbi(ctx, inbox, &round, 1, next);
        shmem_ctx_destroy(ctx);
        CHECK(shmem_long_g(inbox, next) == round, "round %ld", round);
        shmem_barrier_all();
    }
}

static void many(void) {
    enum { MANY = 500 };
    static shmem_ctx_t all[MANY];
    long options[] = {0, SHMEM_CTX_SERIALIZED, SHMEM_CTX_PRIVATE, SHMEM_CTX_NOSTORE, SHMEM_CTX_PRIVATE | SHMEM_CTX_NOSTORE};
    counter = 0;
    shmem_barrier_all();
    for (int i = 0; i < MANY; i++) {
        CHECK(shmem_ctx_create(options[i % 5], &all[i]) == 0, "context %d", i);
        for (int k = 0; k < i; k++) CHECK(all[i] != all[k], "contexts %d and %d", i, k);
    }
    for (int i = 0; i < MANY; i++) shmem_ctx_long_atomic_inc(all[i * 7 % MANY], &counter, i % npes);
    for (int i = 0; i < MANY; i++) shmem_ctx_destroy(all[i * 3 % MANY]);
    shmem_barrier_all();
    CHECK(shmem_long_g(&counter, me) == (MANY / npes + (me < MANY % npes)) * npes, "%ld", counter);
    /* Others cannot be made of nothing. */
    shmem_ctx_t ctx = SHMEM_CTX_DEFAULT;
    shmem_team_t team = SHMEM_TEAM_WORLD;
    CHECK(shmem_team_create_ctx(SHMEM_TEAM_INVALID, 0, &ctx) != 0 && ctx == SHMEM_CTX_INVALID, "no team");
    CHECK(shmem_ctx_get_team(SHMEM_CTX_INVALID, &team) != 0 && team == SHMEM_TEAM_INVALID, "no context");
    CHECK(shmem_ctx_get_team(SHMEM_CTX_DEFAULT, &team) == 0 && team == SHMEM_TEAM_WORLD, "the default context");
    shmem_ctx_destroy(SHMEM_CTX_INVALID);
    CHECK(shmem_ctx_create(0, &ctx) == 0 && shmem_ctx_get_team(ctx, &team) == 0 && team == SHMEM_TEAM_WORLD, "of the world");
    shmem_ctx_destroy(ctx);
}

/* What a PE has still got when its team goes, goes with it. */
static void left_behind(void) {
    shmem_team_t team;
    shmem_ctx_t ctx;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, npes, NULL, 0, &team) == 0, "a team");
    for (int i = 0; i < 20; i++) CHECK(shmem_team_create_ctx(team, 0, &ctx) == 0, "context %d", i);
    shmem_team_destroy(team);
}

int main(void) {
    begin();
    make_teams();
    long options[] = {0, SHMEM_CTX_SERIALIZED, SHMEM_CTX_PRIVATE, SHMEM_CTX_NOSTORE};
    for (int t = 0; t < nteams; t++) {
        if (teams[t].rank >= 0) numbering(&teams[t], options[t % 4]);
        shmem_barrier_all();
    }
    destroyed_is_complete();
    many();
    left_behind();
    shmem_ctx_t left;
    CHECK(shmem_ctx_create(0, &left) == 0, "it ends with the library");
    return finish();
}
