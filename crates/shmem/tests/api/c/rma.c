/* Remote memory access: blocks, strided elements and blocks, single elements; of all types, on all kinds of contexts, between
   the heap, static memory and private memory. Every PE has a slot for each PE in its arrays, into which that one writes. */
#include "test.h"

typedef void block_fn(shmem_ctx_t, void *, const void *, size_t, int);
typedef void strided_fn(shmem_ctx_t, void *, const void *, ptrdiff_t, ptrdiff_t, size_t, int);
typedef void blocks_fn(shmem_ctx_t, void *, const void *, ptrdiff_t, ptrdiff_t, size_t, size_t, int);

/* The functions of a type, without the type. */
struct type {
    const char *name;
    size_t size;
    block_fn *put, *put_nbi, *get, *get_nbi;
    strided_fn *iput, *iget;
    blocks_fn *ibput, *ibget;
};

#define BLOCK(ID, T, F, FC) \
    static void ID(shmem_ctx_t ctx, void *d, const void *s, size_t n, int pe) { \
        if (ctx == NO_CTX) F((T *)d, (const T *)s, n, pe); \
        else FC(ctx, (T *)d, (const T *)s, n, pe); \
    }
#define STRIDED(ID, T, F, FC) \
    static void ID(shmem_ctx_t ctx, void *d, const void *s, ptrdiff_t dst, ptrdiff_t sst, size_t n, int pe) { \
        if (ctx == NO_CTX) F((T *)d, (const T *)s, dst, sst, n, pe); \
        else FC(ctx, (T *)d, (const T *)s, dst, sst, n, pe); \
    }
#define BLOCKS(ID, T, F, FC) \
    static void ID(shmem_ctx_t ctx, void *d, const void *s, ptrdiff_t dst, ptrdiff_t sst, size_t b, size_t n, int pe) { \
        if (ctx == NO_CTX) F((T *)d, (const T *)s, dst, sst, b, n, pe); \
        else FC(ctx, (T *)d, (const T *)s, dst, sst, b, n, pe); \
    }

#define TYPED(N, T) \
    BLOCK(put_##N, T, FN(N, put), FN_CTX(N, put)) \
    BLOCK(put_nbi_##N, T, FN(N, put_nbi), FN_CTX(N, put_nbi)) \
    BLOCK(get_##N, T, FN(N, get), FN_CTX(N, get)) \
    BLOCK(get_nbi_##N, T, FN(N, get_nbi), FN_CTX(N, get_nbi)) \
    STRIDED(iput_##N, T, FN(N, iput), FN_CTX(N, iput)) \
    STRIDED(iget_##N, T, FN(N, iget), FN_CTX(N, iget)) \
    BLOCKS(ibput_##N, T, FN(N, ibput), FN_CTX(N, ibput)) \
    BLOCKS(ibget_##N, T, FN(N, ibget), FN_CTX(N, ibget))
EACH_rma(TYPED)

#define SIZED(N, T) \
    BLOCK(put_bits##N, T, shmem_put##N, shmem_ctx_put##N) \
    BLOCK(put_nbi_bits##N, T, shmem_put##N##_nbi, shmem_ctx_put##N##_nbi) \
    BLOCK(get_bits##N, T, shmem_get##N, shmem_ctx_get##N) \
    BLOCK(get_nbi_bits##N, T, shmem_get##N##_nbi, shmem_ctx_get##N##_nbi) \
    STRIDED(iput_bits##N, T, shmem_iput##N, shmem_ctx_iput##N) \
    STRIDED(iget_bits##N, T, shmem_iget##N, shmem_ctx_iget##N) \
    BLOCKS(ibput_bits##N, T, shmem_ibput##N, shmem_ctx_ibput##N) \
    BLOCKS(ibget_bits##N, T, shmem_ibget##N, shmem_ctx_ibget##N)
EACH_bits(SIZED)

BLOCK(put_mem, void, shmem_putmem, shmem_ctx_putmem)
BLOCK(put_nbi_mem, void, shmem_putmem_nbi, shmem_ctx_putmem_nbi)
BLOCK(get_mem, void, shmem_getmem, shmem_ctx_getmem)
BLOCK(get_nbi_mem, void, shmem_getmem_nbi, shmem_ctx_getmem_nbi)

#define ROW(ID, NAME, SIZE) \
    {NAME, SIZE, put_##ID, put_nbi_##ID, get_##ID, get_nbi_##ID, iput_##ID, iget_##ID, ibput_##ID, ibget_##ID},
#define ROW_TYPED(N, T) ROW(N, #N, sizeof(T))
#define ROW_SIZED(N, T) ROW(bits##N, #N " bits", N / 8)
static const struct type types[] = {
    EACH_rma(ROW_TYPED) EACH_bits(ROW_SIZED)
    {"mem", 1, put_mem, put_nbi_mem, get_mem, get_nbi_mem, NULL, NULL, NULL, NULL},
};
#define NTYPES ((int)(sizeof types / sizeof *types))

/* Elements of a slot, and of what may be written of it: guards are around that. */
#define SLOT 192
#define ROOM 160
#define MAX_SIZE 16
#define MAX_PES 20

static unsigned char statics[2][MAX_PES * SLOT * MAX_SIZE] __attribute__((aligned(16)));
static unsigned char *heap[2];
static unsigned char private_memory[1];

/* The slot for a PE, in elements of this size, past its first guard. */
static unsigned char *slot(unsigned char *array, size_t size, int pe) { return array + (pe * SLOT + 16) * size; }

static int guards_stand(unsigned char *array, size_t size, int pe, size_t written) {
    unsigned char *at = array + pe * SLOT * size;
    return is_guard(at, 16 * size) && is_guard(at + (16 + written) * size, (SLOT - 16 - written) * size);
}

/* What a PE sends to another. */
static uint64_t salt(int from, int to, int round) { return noise(from, to, round); }

static void blocks(const struct type *type, const struct way *way, size_t n, int round) {
    size_t size = type->size, bytes = n * size;
    unsigned char *dest = round % 2 ? heap[0] : statics[0], *dest_nbi = round % 2 ? heap[1] : statics[1];
    size_t all = (size_t)npes * SLOT * size;
    memset(dest, GUARD, all);
    memset(dest_nbi, GUARD, all);
    unsigned char *source = (unsigned char *)malloc(npes * ROOM * size), *back = (unsigned char *)malloc(ROOM * size + 16);
    shmem_barrier_all();
    for (int i = 0; i < npes; i++) {
        int pe = (me + i) % npes;
        unsigned char *from = source + (size_t)pe * ROOM * size;
        fill(from, bytes, salt(me, pe, round));
        type->put_nbi(way->ctx, slot(dest_nbi, size, me), from, n, number(way, pe));
        /* A source may be used again after a put, at once. */
        fill(back, bytes, salt(me, pe, round));
        type->put(way->ctx, slot(dest, size, me), back, n, number(way, pe));
        memset(back, 0, bytes);
    }
    quiet(way);
    fill(source, npes * ROOM * size, 7);
    shmem_barrier_all();
    for (int pe = 0; pe < npes; pe++) {
        CHECK(is_filled(slot(dest, size, pe), bytes, salt(pe, me, round)), "%s put of %zu from %d on %s", type->name, n, pe, way->name);
        CHECK(guards_stand(dest, size, pe, n), "%s put of %zu from %d on %s", type->name, n, pe, way->name);
        CHECK(is_filled(slot(dest_nbi, size, pe), bytes, salt(pe, me, round)), "%s put_nbi of %zu from %d on %s", type->name, n, pe, way->name);
        CHECK(guards_stand(dest_nbi, size, pe, n), "%s put_nbi of %zu from %d on %s", type->name, n, pe, way->name);
    }
    for (int pe = 0; pe < npes; pe++) {
        int whose = (me + pe) % npes;
        memset(back, GUARD, ROOM * size + 16);
        type->get(way->ctx, back, slot(dest, size, whose), n, number(way, pe));
        CHECK(is_filled(back, bytes, salt(whose, pe, round)), "%s get of %zu from %d on %s", type->name, n, pe, way->name);
        CHECK(is_guard(back + bytes, 16), "%s get of %zu on %s", type->name, n, way->name);
        memset(back, GUARD, ROOM * size + 16);
        type->get_nbi(way->ctx, back, slot(dest_nbi, size, whose), n, number(way, pe));
        quiet(way);
        CHECK(is_filled(back, bytes, salt(whose, pe, round)), "%s get_nbi of %zu from %d on %s", type->name, n, pe, way->name);
        CHECK(is_guard(back + bytes, 16), "%s get_nbi of %zu on %s", type->name, n, way->name);
    }
    free(source);
    free(back);
    shmem_barrier_all();
}

/* Copies blocks as the specification says it. */
static void model(unsigned char *d, const unsigned char *s, size_t size, ptrdiff_t dst, ptrdiff_t sst, size_t block, size_t n) {
    for (size_t i = 0; i < n; i++) memcpy(d + i * dst * size, s + i * sst * size, block * size);
}

/* Blocks of several elements, or of one, with the functions for that. */
static void strided(const struct type *type, const struct way *way, ptrdiff_t dst, ptrdiff_t sst, size_t block, size_t n, int round) {
    size_t size = type->size;
    unsigned char *dest = round % 2 ? heap[0] : statics[0];
    unsigned char source[ROOM * MAX_SIZE], expected[ROOM * MAX_SIZE], back[ROOM * MAX_SIZE];
    memset(dest, GUARD, (size_t)npes * SLOT * size);
    shmem_barrier_all();
    for (int i = 0; i < npes; i++) {
        int pe = (me + i) % npes;
        fill(source, ROOM * size, salt(me, pe, round));
        if (block) type->ibput(way->ctx, slot(dest, size, me), source, dst, sst, block, n, number(way, pe));
        else type->iput(way->ctx, slot(dest, size, me), source, dst, sst, n, number(way, pe));
    }
    quiet(way);
    shmem_barrier_all();
    size_t of = block ? block : 1;
    for (int pe = 0; pe < npes; pe++) {
        fill(source, ROOM * size, salt(pe, me, round));
        memset(expected, GUARD, ROOM * size);
        model(expected, source, size, dst, sst, of, n);
        CHECK(memcmp(slot(dest, size, pe), expected, ROOM * size) == 0, "%s, %zu of %zu, strides %td %td, from %d on %s",
            type->name, n, block, dst, sst, pe, way->name);
        CHECK(guards_stand(dest, size, pe, ROOM), "%s, %zu of %zu", type->name, n, block);
    }
    /* Back from where it went, with the strides the other way round. */
    for (int pe = 0; pe < npes; pe++) {
        int whose = (me + pe) % npes;
        memset(back, GUARD, ROOM * size);
        if (block) type->ibget(way->ctx, back, slot(dest, size, whose), sst, dst, block, n, number(way, pe));
        else type->iget(way->ctx, back, slot(dest, size, whose), sst, dst, n, number(way, pe));
        fill(source, ROOM * size, salt(whose, pe, round));
        memset(expected, GUARD, ROOM * size);
        model(expected, source, size, sst, sst, of, n);
        CHECK(memcmp(back, expected, ROOM * size) == 0, "%s, %zu of %zu, strides %td %td, get from %d on %s",
            type->name, n, block, sst, dst, pe, way->name);
    }
    shmem_barrier_all();
}

/* Single elements: written to one's slot of each PE, read from everybody's. */
#define SINGLE(N, T) \
    static void single_##N(const struct way *way, int round) { \
        T *dest = (T *)(round % 2 ? heap[0] : statics[0]); \
        memset(dest, GUARD, (npes + 1) * sizeof(T)); \
        shmem_barrier_all(); \
        for (int i = 0; i < npes; i++) { \
            int pe = (me + i) % npes; \
            if (way->ctx == NO_CTX) FN(N, p)(&dest[me], value_##N(salt(me, pe, round)), number(way, pe)); \
            else FN_CTX(N, p)(way->ctx, &dest[me], value_##N(salt(me, pe, round)), number(way, pe)); \
        } \
        quiet(way); \
        shmem_barrier_all(); \
        for (int pe = 0; pe < npes; pe++) \
            CHECK(dest[pe] == value_##N(salt(pe, me, round)), #N " p from %d on %s", pe, way->name); \
        CHECK(is_guard(&dest[npes], sizeof(T)), #N " p on %s", way->name); \
        for (int pe = 0; pe < npes; pe++) { \
            int whose = (me + pe) % npes; \
            T seen = way->ctx == NO_CTX ? FN(N, g)(&dest[whose], number(way, pe)) : FN_CTX(N, g)(way->ctx, &dest[whose], number(way, pe)); \
            CHECK(seen == value_##N(salt(whose, pe, round)), #N " g from %d on %s", pe, way->name); \
        } \
        shmem_barrier_all(); \
    }
EACH_rma(SINGLE)

/* Nothing is sent, and nothing is looked at. */
static void nothing(const struct type *type, const struct way *way, int pe) {
    type->put(way->ctx, NULL, NULL, 0, pe);
    type->put_nbi(way->ctx, NULL, NULL, 0, pe);
    type->get(way->ctx, NULL, NULL, 0, pe);
    type->get_nbi(way->ctx, NULL, NULL, 0, pe);
    type->put(way->ctx, private_memory, private_memory, 0, pe);
    if (!type->iput) return;
    type->iput(way->ctx, NULL, NULL, 1, 1, 0, pe);
    type->iget(way->ctx, NULL, NULL, 1, 1, 0, pe);
    type->ibput(way->ctx, NULL, NULL, 1, 1, 0, 3, pe);
    type->ibput(way->ctx, NULL, NULL, 4, 4, 3, 0, pe);
    type->ibget(way->ctx, NULL, NULL, 1, 1, 0, 3, pe);
    /* Of one element no stride is used. */
    type->iput(way->ctx, statics[0], statics[1], PTRDIFF_MAX, PTRDIFF_MAX, 1, pe);
    quiet(way);
    type->iget(way->ctx, statics[0], statics[1], PTRDIFF_MAX, PTRDIFF_MAX, 1, pe);
    type->ibget(way->ctx, NULL, NULL, 4, 4, 3, 0, pe);
}

/* Some MiB at odd addresses to the next PE, and back from the one after it. */
static void large(const struct way *way) {
    size_t bytes = (3 << 20) + 5;
    unsigned char *dest = (unsigned char *)shmem_malloc(bytes + 64), *source = (unsigned char *)malloc(bytes + 64);
    int next = (me + 1) % npes, before = (me + npes - 1) % npes;
    for (int nbi = 0; nbi < 2; nbi++) {
        memset(dest, GUARD, bytes + 64);
        fill(source + 1, bytes, salt(me, next, nbi));
        shmem_barrier_all();
        (nbi ? put_nbi_mem : put_mem)(way->ctx, dest + 3, source + 1, bytes, number(way, next));
        quiet(way);
        shmem_barrier_all();
        CHECK(is_filled(dest + 3, bytes, salt(before, me, nbi)) && is_guard(dest, 3) && is_guard(dest + 3 + bytes, 61), "%s", way->name);
        memset(source, GUARD, bytes + 64);
        (nbi ? get_nbi_mem : get_mem)(way->ctx, source + 5, dest + 3, bytes, number(way, next));
        quiet(way);
        CHECK(is_filled(source + 5, bytes, salt(me, next, nbi)) && is_guard(source, 5) && is_guard(source + 5 + bytes, 59), "%s", way->name);
        shmem_barrier_all();
    }
    free(source);
    shmem_free(dest);
}

/* Copies within one's own memory, where the two places overlap. */
static void overlapping(unsigned char *memory, const struct way *way) {
    int pe = number(way, me);
    size_t lengths[] = {1, 7, 64, 1000, 40000}, room = 50000;
    unsigned char *expected = (unsigned char *)malloc(room);
    for (int i = 0; i < 5; i++) {
        for (int shift = -67; shift <= 67; shift += 67 - 4 * (i % 2)) {
            unsigned char *source = memory + 100, *dest = source + shift;
            fill(expected, room, i);
            memmove(expected + 100 + shift, expected + 100, lengths[i]);
            for (int get = 0; get < 2; get++) {
                fill(memory, room, i);
                if (get) get_mem(way->ctx, dest, source, lengths[i], pe);
                else put_mem(way->ctx, dest, source, lengths[i], pe);
                quiet(way);
                CHECK(memcmp(memory, expected, room) == 0, "%s: %zu bytes moved by %d, get: %d", way->name, lengths[i], shift, get);
            }
        }
    }
    free(expected);
}

int main(void) {
    begin();
    CHECK(npes <= MAX_PES, "the program's arrays are for fewer PEs");
    make_ways();
    heap[0] = (unsigned char *)shmem_malloc(sizeof statics[0]);
    heap[1] = (unsigned char *)shmem_align(4096, sizeof statics[1]);
    int round = 0;
    size_t counts[] = {1, 3, 17, 111, 0, 160};
    for (int i = 0; i < NTYPES; i++)
        for (int w = 0; w < nways; w++, round++) {
            if (!chosen(round)) continue;
            blocks(&types[i], &ways[w], counts[round % 6], round / 6);
            nothing(&types[i], &ways[w], number(&ways[w], me));
        }
    struct { ptrdiff_t dst, sst; size_t block, n; } strides[] = {
        {1, 1, 0, 9}, {3, 1, 0, 40}, {1, 7, 0, 23}, {5, 5, 0, 32}, {1, 1, 1, 100}, {4, 3, 3, 12}, {7, 9, 5, 17}, {50, 40, 37, 3}, {8, 8, 0, 1},
    };
    for (int i = 0; i < NTYPES; i++)
        for (int w = 0; types[i].iput && w < nways; w++)
            for (int twice = 0; twice < 2; twice++, round++) {
                int k = round % 9;
                if (chosen(round)) strided(&types[i], &ways[w], strides[k].dst, strides[k].sst, strides[k].block, strides[k].n, round / 9);
            }
#define EVERY_SINGLE(N, T) for (int w = 0; w < nways; w++, round++) if (chosen(round)) single_##N(&ways[w], round);
    EACH_rma(EVERY_SINGLE)
    for (int w = 0; w < nways; w++) large(&ways[w]);
    for (int w = 0; w < nways; w++) {
        overlapping(heap[0], &ways[w]);
        /* On the test network, one's own static data is reached at other addresses. */
        if (!getenv("MEMONET_FABRIC")) overlapping(statics[0], &ways[w]);
    }
    return finish();
}
