/* Order and completion: on a network that reorders all it may, the payload is there when the flag is, if a fence or a quiet stood
   between them. */
#include "test.h"

enum { WORDS = 40, ROUNDS = 12 };
static long payload[WORDS], source[WORDS];
static long flag;
static uint64_t signal_word;
/* Of more bytes than a message of a small kind has. */
static unsigned char *large;
enum { LARGE = 20000 };

static void fence(const struct way *way) {
    if (way->ctx == NO_CTX) shmem_fence();
    else shmem_ctx_fence(way->ctx);
}

/* Sends the payload of a round in one of many ways. */
enum { SENDS = 8 };
static void send_payload(const struct way *way, int how, long round, int pe) {
    shmem_ctx_t ctx = way->ctx == NO_CTX ? SHMEM_CTX_DEFAULT : way->ctx;
    int to = number(way, pe);
    for (int i = 0; i < WORDS; i++) source[i] = round * 100 + i;
    switch (how) {
    case 0: shmem_ctx_long_put(ctx, payload, source, WORDS, to); break;
    case 1: shmem_ctx_long_put_nbi(ctx, payload, source, WORDS, to); break;
    case 2:
        for (int i = 0; i < WORDS; i++) shmem_ctx_long_p(ctx, &payload[i], source[i], to);
        break;
    case 3:
        for (int i = 0; i < WORDS; i++) shmem_ctx_long_atomic_set(ctx, &payload[i], source[i], to);
        break;
    case 4:
        for (int i = 0; i < WORDS; i++) shmem_ctx_long_atomic_add(ctx, &payload[i], round == 1 ? source[i] : 100, to);
        break;
    case 5:
        shmem_ctx_long_iput(ctx, payload, source, 2, 2, WORDS / 2, to);
        shmem_ctx_long_iput(ctx, payload + 1, source + 1, 2, 2, WORDS / 2, to);
        break;
    case 6: shmem_ctx_long_put_signal(ctx, payload, source, WORDS, &signal_word, round, SHMEM_SIGNAL_SET, to); break;
    case 7: shmem_ctx_long_put_signal_nbi(ctx, payload, source, WORDS, &signal_word, round, SHMEM_SIGNAL_SET, to); break;
    }
    unsigned char bytes[LARGE];
    memset(bytes, (int)round, LARGE);
    shmem_ctx_putmem(ctx, large, bytes, LARGE, to);
}

/* Raises the flag in one of many ways. */
enum { FLAGS = 6 };
static void raise_flag(const struct way *way, int how, long round, int pe) {
    shmem_ctx_t ctx = way->ctx == NO_CTX ? SHMEM_CTX_DEFAULT : way->ctx;
    int to = number(way, pe);
    long last = round * 100 + WORDS - 1;
    switch (how) {
    case 0: shmem_ctx_long_p(ctx, &flag, round, to); break;
    case 1: shmem_ctx_long_atomic_inc(ctx, &flag, to); break;
    case 2: shmem_ctx_long_atomic_set(ctx, &flag, round, to); break;
    case 3: shmem_ctx_long_put(ctx, &flag, &round, 1, to); break;
    case 4: shmem_ctx_signal_add(ctx, (uint64_t *)&flag, 1, to); break;
    case 5: shmem_ctx_long_put_signal(ctx, &payload[WORDS - 1], &last, 1, (uint64_t *)&flag, round, SHMEM_SIGNAL_SET, to); break;
    }
}

static void check_payload(const struct way *way, int send, int raise, long round) {
    for (int i = 0; i < WORDS; i++)
        CHECK(payload[i] == round * 100 + i, "word %d of round %ld, sent by way %d, flag %d, on %s: %ld", i, round, send, raise, way->name, payload[i]);
    for (int i = 0; i < LARGE; i++) CHECK(large[i] == (unsigned char)round, "byte %d of round %ld, sent by way %d, flag %d", i, round, send, raise);
}

/* Everybody sends to the next PE, and waits for the one before. */
static void in_order(const struct way *way, int send, int raise, int how) {
    int next = (me + 1) % npes;
    memset(payload, 0, sizeof payload);
    memset(large, 0, LARGE);
    flag = 0;
    shmem_barrier_all();
    for (long round = 1; round <= ROUNDS; round++) {
        send_payload(way, send, round, next);
        if (how == 0) fence(way);
        else if (how == 1) quiet(way);
        else {
            int list[] = {number(way, next), number(way, me)};
            if (way->ctx == NO_CTX) shmem_pe_quiet(list, how - 1);
            else shmem_ctx_pe_quiet(way->ctx, list, how - 1);
        }
        raise_flag(way, raise, round, next);
        shmem_long_wait_until(&flag, SHMEM_CMP_GE, round);
        check_payload(way, send, raise, round);
        shmem_barrier_all();
        quiet(way);
        shmem_barrier_all();
    }
}

/* Complete is complete for everybody: a third PE hears of it and looks. */
static void complete_for_all(const struct way *way, int send, int how) {
    if (npes < 3) return;
    int holder = (me + 1) % npes, reader = (me + 2) % npes, about = (me + npes - 2) % npes;
    for (long round = 1; round <= ROUNDS; round++) {
        send_payload(way, send, round, holder);
        int list[] = {number(way, holder)};
        if (how) quiet(way);
        else if (way->ctx == NO_CTX) shmem_pe_quiet(list, 1);
        else shmem_ctx_pe_quiet(way->ctx, list, 1);
        shmem_long_p(&flag, round, reader);
        shmem_long_wait_until(&flag, SHMEM_CMP_EQ, round);
        long seen[WORDS];
        shmem_long_get(seen, payload, WORDS, (about + 1) % npes);
        for (int i = 0; i < WORDS; i++) CHECK(seen[i] == round * 100 + i, "word %d of round %ld, sent by way %d, on %s", i, round, send, way->name);
        shmem_barrier_all();
    }
}

/* A barrier completes what was sent without a context; also where a put was not blocking. */
static void barriers(void) {
    for (long round = 1; round <= ROUNDS; round++) {
        for (int pe = 0; pe < npes; pe++) {
            source[0] = round * 1000 + me;
            shmem_long_put_nbi(&payload[me % WORDS], source, 1, pe);
        }
        shmem_barrier_all();
        for (int pe = 0; pe < npes; pe++) CHECK(payload[pe] == round * 1000 + pe, "round %ld from %d", round, pe);
        shmem_sync_all();
    }
}

int main(void) {
    begin();
    make_ways();
    large = (unsigned char *)shmem_malloc(LARGE);
    int case_number = 0;
    for (int w = 0; w < nways; w++)
        for (int send = 0; send < SENDS; send++)
            for (int raise = 0; raise < FLAGS; raise++, case_number++)
                if (chosen(case_number)) in_order(&ways[w], send, raise, case_number % 4);
    for (int w = 0; w < nways; w++)
        for (int send = 0; send < SENDS; send++) {
            shmem_barrier_all();
            memset(payload, 0, sizeof payload);
            flag = 0;
            shmem_barrier_all();
            complete_for_all(&ways[w], send, send % 2);
        }
    barriers();
    shmem_pe_quiet(NULL, 0);
    shmem_ctx_pe_quiet(SHMEM_CTX_DEFAULT, NULL, 0);
    shmem_ctx_fence(SHMEM_CTX_INVALID);
    shmem_ctx_quiet(SHMEM_CTX_INVALID);
    shmem_ctx_pe_quiet(SHMEM_CTX_INVALID, NULL, 0);
    shmem_set_cache_inv();
    shmem_set_cache_line_inv(payload);
    shmem_clear_cache_inv();
    shmem_clear_cache_line_inv(payload);
    shmem_udcflush();
    shmem_udcflush_line(payload);
    return finish();
}
