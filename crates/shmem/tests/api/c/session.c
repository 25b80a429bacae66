/* Sessions, which change nothing but speed. */
#include "test.h"

static long words[4];

static void within(shmem_ctx_t ctx, int round) {
    int next = (me + 1) % npes;
    for (long i = 0; i < 20; i++) {
        long value = round * 100 + i;
        shmem_ctx_long_put_nbi(ctx, &words[0], &value, 1, next);
        shmem_ctx_long_p(ctx, &words[1], value, next);
        shmem_ctx_long_atomic_inc(ctx, &words[2], next);
        shmem_ctx_quiet(ctx);
        CHECK(shmem_ctx_long_g(ctx, &words[0], next) == value && shmem_ctx_long_g(ctx, &words[1], next) == value, "round %d", round);
    }
    CHECK(shmem_ctx_long_atomic_fetch(ctx, &words[2], next) == 20 * (round + 1), "round %d", round);
}

int main(void) {
    begin();
    make_ways();
    int round = 0;
    for (int w = 1; w < nways; w++) {
        if (ways[w].reversed) continue;
        shmem_ctx_session_config_t config = {1000};
        shmem_ctx_session_start(ways[w].ctx, SHMEM_CTX_SESSION_BATCH, &config, SHMEM_CTX_SESSION_TOTAL_OPS);
        within(ways[w].ctx, round++);
        /* Again within the first: options are joined. */
        shmem_ctx_session_start(ways[w].ctx, 0, NULL, 0);
        within(ways[w].ctx, round++);
        shmem_barrier_all();
        shmem_ctx_session_stop(ways[w].ctx);
        within(ways[w].ctx, round++);
        shmem_ctx_session_start(ways[w].ctx, SHMEM_CTX_SESSION_BATCH, &config, 0);
        within(ways[w].ctx, round++);
        shmem_ctx_session_stop(ways[w].ctx);
        shmem_barrier_all();
    }
    shmem_ctx_session_start(SHMEM_CTX_INVALID, SHMEM_CTX_SESSION_BATCH, NULL, 0);
    shmem_ctx_session_start(SHMEM_CTX_INVALID, 0, NULL, SHMEM_CTX_SESSION_TOTAL_OPS);
    shmem_ctx_session_stop(SHMEM_CTX_INVALID);
    return finish();
}
