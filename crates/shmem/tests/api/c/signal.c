/* Puts with a signal, and signals alone: whoever sees the signal sees the block; nothing else says that it is there. */
#include "test.h"

typedef void signal_fn(shmem_ctx_t, void *, const void *, size_t, uint64_t *, uint64_t, int, int);

struct type {
    const char *name;
    size_t size;
    signal_fn *put, *put_nbi;
};

#define PUT(ID, T, F, FC) \
    static void ID(shmem_ctx_t ctx, void *d, const void *s, size_t n, uint64_t *word, uint64_t value, int op, int pe) { \
        if (ctx == NO_CTX) F((T *)d, (const T *)s, n, word, value, op, pe); \
        else FC(ctx, (T *)d, (const T *)s, n, word, value, op, pe); \
    }
#define TYPED(N, T) \
    PUT(put_##N, T, FN(N, put_signal), FN_CTX(N, put_signal)) \
    PUT(put_nbi_##N, T, FN(N, put_signal_nbi), FN_CTX(N, put_signal_nbi))
#define SIZED(N, T) \
    PUT(put_bits##N, T, shmem_put##N##_signal, shmem_ctx_put##N##_signal) \
    PUT(put_nbi_bits##N, T, shmem_put##N##_signal_nbi, shmem_ctx_put##N##_signal_nbi)
EACH_rma(TYPED)
EACH_bits(SIZED)
PUT(put_mem, void, shmem_putmem_signal, shmem_ctx_putmem_signal)
PUT(put_nbi_mem, void, shmem_putmem_signal_nbi, shmem_ctx_putmem_signal_nbi)

#define ROW_TYPED(N, T) {#N, sizeof(T), put_##N, put_nbi_##N},
#define ROW_SIZED(N, T) {#N " bits", N / 8, put_bits##N, put_nbi_bits##N},
static const struct type types[] = {EACH_rma(ROW_TYPED) EACH_bits(ROW_SIZED) {"mem", 1, put_mem, put_nbi_mem}};
#define NTYPES ((int)(sizeof types / sizeof *types))

#ifdef GENERIC
#define SIGNAL(OPERATION, word, ...) (ctx == NO_CTX ? shmem_signal_##OPERATION(word, __VA_ARGS__) : shmem_signal_##OPERATION(ctx, word, __VA_ARGS__))
#else
#define SIGNAL(OPERATION, word, ...) (ctx == NO_CTX ? shmem_signal_##OPERATION(word, __VA_ARGS__) : shmem_ctx_signal_##OPERATION(ctx, word, __VA_ARGS__))
#endif

#define MAX_PES 20
#define ROOM 4096
static uint64_t static_words[MAX_PES], *heap_words;
static unsigned char static_blocks[MAX_PES * ROOM] __attribute__((aligned(16))), *heap_blocks;

/* Everybody sends everybody a block in every round, adding to the receiver's word for him or setting it. */
static void exchange(const struct type *type, const struct way *way, int nbi, int op, size_t n, int round) {
    uint64_t *words = round % 2 ? heap_words : static_words;
    unsigned char *blocks = round / 2 % 2 ? heap_blocks : static_blocks;
    size_t bytes = n * type->size;
    unsigned char *sources = (unsigned char *)malloc((size_t)npes * ROOM);
    uint64_t before = round, by = 1 + noise(round, 0, 0) % 1000000;
    uint64_t after = op == SHMEM_SIGNAL_ADD ? before + by : by + 1000;
    for (int pe = 0; pe < npes; pe++) words[pe] = before;
    memset(blocks, GUARD, (size_t)npes * ROOM);
    shmem_barrier_all();
    for (int i = 0; i < npes; i++) {
        int pe = (me + i) % npes;
        unsigned char *source = sources + (size_t)pe * ROOM;
        fill(source, bytes, noise(me, pe, round));
        (nbi ? type->put_nbi : type->put)(way->ctx, blocks + (size_t)me * ROOM, source, n, &words[me],
            op == SHMEM_SIGNAL_ADD ? by : after, op, number(way, pe));
        if (!nbi) memset(source, 0, bytes);
    }
    for (int i = 1; i <= npes; i++) {
        int pe = (me + i) % npes;
        uint64_t seen = shmem_signal_wait_until(&words[pe], SHMEM_CMP_EQ, after);
        CHECK(seen == after && shmem_signal_fetch(&words[pe]) == after, "%s", type->name);
        CHECK(is_filled(blocks + (size_t)pe * ROOM, bytes, noise(pe, me, round)), "%s, %zu from %d, nbi %d, on %s", type->name, n, pe, nbi, way->name);
        CHECK(is_guard(blocks + (size_t)pe * ROOM + bytes, ROOM - bytes), "%s, %zu from %d, nbi %d, on %s", type->name, n, pe, nbi, way->name);
    }
    quiet(way);
    shmem_barrier_all();
    free(sources);
}

static void large(int nbi) {
    size_t bytes = (2 << 20) + 3;
    unsigned char *blocks = (unsigned char *)shmem_malloc(bytes), *source = (unsigned char *)malloc(bytes);
    int next = (me + 1) % npes, before = (me + npes - 1) % npes;
    fill(source, bytes, me);
    static_words[0] = 0;
    shmem_barrier_all();
    (nbi ? put_nbi_mem : put_mem)(NO_CTX, blocks, source, bytes, &static_words[0], 5, SHMEM_SIGNAL_SET, next);
    shmem_signal_wait_until(&static_words[0], SHMEM_CMP_GE, 5);
    CHECK(is_filled(blocks, bytes, before), "%zu bytes, nbi %d", bytes, nbi);
    shmem_quiet();
    shmem_free(blocks);
    free(source);
}

/* Signals alone: sums of all, with what wraps around, and what is set last. */
static void alone(const struct way *way) {
    shmem_ctx_t ctx = way->ctx;
    uint64_t *words = heap_words;
    words[0] = UINT64_MAX - 2;
    words[1] = 0;
    shmem_barrier_all();
    for (int i = 0; i < 10; i++) {
        for (int pe = 0; pe < npes; pe++) {
            SIGNAL(add, &words[0], (uint64_t)me + 1, number(way, pe));
            SIGNAL(add, &words[1], UINT64_MAX, number(way, pe));
        }
        /* One's own word of the next PE. */
        uint64_t value = noise(me, i, 0);
        SIGNAL(set, &words[2], value, number(way, (me + 1) % npes));
        quiet(way);
        CHECK(FN(uint64, g)(&words[2], (me + 1) % npes) == value, "signal_set on %s", way->name);
    }
    shmem_barrier_all();
    CHECK(shmem_signal_fetch(&words[0]) == UINT64_MAX - 2 + (uint64_t)10 * npes * (npes + 1) / 2, "signal_add on %s", way->name);
    CHECK(shmem_signal_fetch(&words[1]) == -(uint64_t)10 * npes, "signal_add that wraps around, on %s", way->name);
    CHECK(shmem_signal_wait_until(&words[1], SHMEM_CMP_GT, 5) == words[1], "%s", way->name);
    shmem_barrier_all();
}

/* Nothing but the signal, with pointers to nothing. */
static void empty(const struct type *type, const struct way *way) {
    uint64_t *word = &heap_words[0];
    *word = 0;
    shmem_barrier_all();
    for (int pe = 0; pe < npes; pe++) {
        type->put(way->ctx, NULL, NULL, 0, word, 1, SHMEM_SIGNAL_ADD, number(way, pe));
        type->put_nbi(way->ctx, NULL, NULL, 0, word, 1, SHMEM_SIGNAL_ADD, number(way, pe));
    }
    shmem_signal_wait_until(word, SHMEM_CMP_EQ, 2 * npes);
    quiet(way);
    shmem_barrier_all();
}

int main(void) {
    begin();
    make_ways();
    heap_words = (uint64_t *)shmem_malloc(sizeof static_words);
    heap_blocks = (unsigned char *)shmem_malloc(sizeof static_blocks);
    size_t counts[] = {1, 3, 17, 200, 0, 256, 2};
    int round = 0;
    for (int i = 0; i < NTYPES; i++)
        for (int w = 0; w < nways; w++)
            for (int nbi = 0; nbi < 2; nbi++, round++) {
                if (!chosen(round)) continue;
                int op = round / 3 % 2 ? SHMEM_SIGNAL_SET : SHMEM_SIGNAL_ADD;
                exchange(&types[i], &ways[w], nbi, op, counts[round % 7], round);
                if (nbi) empty(&types[i], &ways[w]);
            }
    for (int w = 0; w < nways; w++) alone(&ways[w]);
    for (int nbi = 0; nbi < 2; nbi++) large(nbi);
    return finish();
}
