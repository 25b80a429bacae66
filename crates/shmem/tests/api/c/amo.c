/* Atomic memory operations: sequences on one word against a model, with and without a context, fetching in all ways; and many PEs
   on the same words, where only totals are known. */
#include "test.h"

enum { FETCH, SET, SWAP, COMPARE_SWAP, INC, FETCH_INC, ADD, FETCH_ADD, AND, FETCH_AND, OR, FETCH_OR, XOR, FETCH_XOR, ALL };
/* Where what was there comes back. */
enum { RESULT, NBI };

/* Calls with a context or without one. */
#define DO(N, OPERATION, ...) (ctx == NO_CTX ? FN(N, OPERATION)(__VA_ARGS__) : FN_CTX(N, OPERATION)(ctx, __VA_ARGS__))

/* Carries out an operation: what was there, or `missing` where that is not told. */
#define EXTENDED(N, T) \
    static T extended_##N(shmem_ctx_t ctx, int op, int nbi, T *dest, T value, int pe, T missing) { \
        T old = missing; \
        switch (op) { \
        case FETCH: \
            if (nbi) DO(N, atomic_fetch_nbi, &old, dest, pe); \
            else old = DO(N, atomic_fetch, dest, pe); \
            break; \
        case SET: DO(N, atomic_set, dest, value, pe); break; \
        case SWAP: \
            if (nbi) DO(N, atomic_swap_nbi, &old, dest, value, pe); \
            else old = DO(N, atomic_swap, dest, value, pe); \
            break; \
        } \
        if (ctx == NO_CTX) shmem_quiet(); \
        else shmem_ctx_quiet(ctx); \
        return old; \
    }
EACH_extended(EXTENDED)

#define AMO(N, T) \
    static T amo_##N(shmem_ctx_t ctx, int op, int nbi, T *dest, T value, T cond, int pe, T missing) { \
        T old = missing; \
        switch (op) { \
        case COMPARE_SWAP: \
            if (nbi) DO(N, atomic_compare_swap_nbi, &old, dest, cond, value, pe); \
            else old = DO(N, atomic_compare_swap, dest, cond, value, pe); \
            break; \
        case INC: DO(N, atomic_inc, dest, pe); break; \
        case FETCH_INC: \
            if (nbi) DO(N, atomic_fetch_inc_nbi, &old, dest, pe); \
            else old = DO(N, atomic_fetch_inc, dest, pe); \
            break; \
        case ADD: DO(N, atomic_add, dest, value, pe); break; \
        case FETCH_ADD: \
            if (nbi) DO(N, atomic_fetch_add_nbi, &old, dest, value, pe); \
            else old = DO(N, atomic_fetch_add, dest, value, pe); \
            break; \
        default: return extended_##N(ctx, op, nbi, dest, value, pe, missing); \
        } \
        if (ctx == NO_CTX) shmem_quiet(); \
        else shmem_ctx_quiet(ctx); \
        return old; \
    }
EACH_amo(AMO)

#define BITWISE(N, T) \
    static T bitwise_##N(shmem_ctx_t ctx, int op, int nbi, T *dest, T value, T cond, int pe, T missing) { \
        T old = missing; \
        switch (op) { \
        case AND: DO(N, atomic_and, dest, value, pe); break; \
        case OR: DO(N, atomic_or, dest, value, pe); break; \
        case XOR: DO(N, atomic_xor, dest, value, pe); break; \
        case FETCH_AND: \
            if (nbi) DO(N, atomic_fetch_and_nbi, &old, dest, value, pe); \
            else old = DO(N, atomic_fetch_and, dest, value, pe); \
            break; \
        case FETCH_OR: \
            if (nbi) DO(N, atomic_fetch_or_nbi, &old, dest, value, pe); \
            else old = DO(N, atomic_fetch_or, dest, value, pe); \
            break; \
        case FETCH_XOR: \
            if (nbi) DO(N, atomic_fetch_xor_nbi, &old, dest, value, pe); \
            else old = DO(N, atomic_fetch_xor, dest, value, pe); \
            break; \
        default: return amo_##N(ctx, op, nbi, dest, value, cond, pe, missing); \
        } \
        if (ctx == NO_CTX) shmem_quiet(); \
        else shmem_ctx_quiet(ctx); \
        return old; \
    }
EACH_bitwise(BITWISE)

/* What each operation makes of a word. */
#define MODEL_BITS(T) \
    case AND: case FETCH_AND: return (T)(word & value); \
    case OR: case FETCH_OR: return (T)(word | value); \
    case XOR: case FETCH_XOR: return (T)(word ^ value);
#define MODEL_NO_BITS(T)
#define MODEL(ID, T, BITS) \
    static T ID(int op, T word, T value, T cond) { \
        switch (op) { \
        case FETCH: return word; \
        case SET: case SWAP: return value; \
        case COMPARE_SWAP: return word == cond ? value : word; \
        case INC: case FETCH_INC: return (T)(word + 1); \
        case ADD: case FETCH_ADD: return (T)(word + value); \
        BITS(T) \
        } \
        return word; \
    }
static int fetches(int op) {
    return op == FETCH || op == SWAP || op == COMPARE_SWAP || op == FETCH_INC || op == FETCH_ADD || op == FETCH_AND || op == FETCH_OR || op == FETCH_XOR;
}

/* A sequence of random operations on one's own word of a PE, beginning close to where numbers wrap around. */
#define SEQUENCE(KIND, N, T, OPS, CALL, BITS) \
    MODEL(model_##KIND##_##N, T, BITS) \
    static void sequence_##KIND##_##N(const struct way *way, T *words, int round) { \
        int pe = (me + round) % npes; \
        T *word = &words[me], expected = (T)~0ULL; \
        if (round % 2) expected = (T)((uint64_t)-1 >> (65 - 8 * sizeof(T))); \
        FN(N, p)(word, expected, pe); \
        shmem_quiet(); \
        for (int i = 0; i < 4 * OPS; i++) { \
            uint64_t random = noise(me, round, i); \
            int op = i < OPS ? i : (int)(random % OPS), nbi = random >> 8 & 1; \
            T value = value_##N(noise(random, 1, 1)), cond = random >> 9 & 1 ? expected : value_##N(random), missing = value_##N(~random); \
            T old = CALL; \
            CHECK(old == (fetches(op) ? expected : missing), #N " operation %d, nbi %d, on %s", op, nbi, way->name); \
            expected = model_##KIND##_##N(op, expected, value, cond); \
            CHECK(FN(N, g)(word, pe) == expected, #N " after operation %d, nbi %d, on %s", op, nbi, way->name); \
        } \
        shmem_barrier_all(); \
    }
#define SEQUENCE_EXTENDED(N, T) SEQUENCE(extended, N, T, 3, \
    extended_##N(way->ctx, op, nbi, word, value, number(way, pe), missing), MODEL_NO_BITS)
#define SEQUENCE_AMO(N, T) SEQUENCE(amo, N, T, AND, \
    amo_##N(way->ctx, op, nbi, word, value, cond, number(way, pe), missing), MODEL_NO_BITS)
#define SEQUENCE_BITWISE(N, T) SEQUENCE(bitwise, N, T, ALL, \
    bitwise_##N(way->ctx, op, nbi, word, value, cond, number(way, pe), missing), MODEL_BITS)
EACH_extended(SEQUENCE_EXTENDED)
EACH_amo(SEQUENCE_AMO)
EACH_bitwise(SEQUENCE_BITWISE)

/* All PEs count on the same words, take tickets, and hand a turn around. */
enum { ROUNDS = 20 };
static int tickets[ROUNDS * 32];

#define CONTEND(N, T) \
    static void contend_##N(T *words) { \
        int where = 1 % npes; \
        memset(words, 0, 8 * sizeof(T)); \
        memset(tickets, 0, sizeof tickets); \
        shmem_barrier_all(); \
        for (int i = 0; i < ROUNDS; i++) { \
            FN(N, atomic_inc)(&words[0], where); \
            FN(N, atomic_add)(&words[1], (T)(me + 1), where); \
            T ticket = FN(N, atomic_fetch_inc)(&words[2], where); \
            shmem_int_atomic_inc(&tickets[(int)ticket], where); \
            ticket = FN(N, atomic_fetch_add)(&words[3], (T)3, where); \
            CHECK(ticket % 3 == 0, #N); \
            /* Adds by comparing, as nobody else adds in between. */ \
            T seen = FN(N, atomic_fetch)(&words[4], where), old; \
            while ((old = FN(N, atomic_compare_swap)(&words[4], seen, (T)(seen + 2), where)) != seen) seen = old; \
            /* What is swapped in is swapped out by one, and stays in the sum. */ \
            T mine = (T)(i + 1), got = FN(N, atomic_swap)(&words[5], mine, where); \
            FN(N, atomic_add)(&words[6], (T)(mine - got), where); \
        } \
        shmem_barrier_all(); \
        T *seen = words; \
        if (me == where) { \
            CHECK(seen[0] == (T)(ROUNDS * npes), #N " inc"); \
            CHECK(seen[1] == (T)(ROUNDS * npes * (npes + 1) / 2), #N " add"); \
            for (int i = 0; i < ROUNDS * npes; i++) CHECK(tickets[i] == 1, #N " fetch_inc: ticket %d was given %d times", i, tickets[i]); \
            CHECK(seen[3] == (T)(3 * ROUNDS * npes), #N " fetch_add"); \
            CHECK(seen[4] == (T)(2 * ROUNDS * npes), #N " compare_swap"); \
            CHECK(seen[5] == seen[6], #N " swap"); \
        } \
        shmem_barrier_all(); \
    }
EACH_amo(CONTEND)

/* Each PE has its bit: sets it in one word, clears it in another, turns it again and again in a third. */
#define CONTEND_BITS(N, T) \
    static void contend_bits_##N(T *words) { \
        T bit = (T)1 << (me % 32), all = 0; \
        for (int pe = 0; pe < npes; pe++) all |= (T)1 << (pe % 32); \
        words[0] = 0, words[1] = all, words[2] = 0, words[3] = 0, words[4] = all; \
        shmem_barrier_all(); \
        for (int i = 0; i < ROUNDS; i++) FN(N, atomic_xor)(&words[2], bit, 0); \
        for (int i = 0; i <= ROUNDS; i++) { \
            T old = FN(N, atomic_fetch_xor)(&words[3], bit, 0); \
            CHECK(((old & bit) != 0) == (i % 2 == 1), #N " fetch_xor"); \
        } \
        FN(N, atomic_or)(&words[0], bit, 0); \
        FN(N, atomic_and)(&words[1], (T)~bit, 0); \
        CHECK((FN(N, atomic_fetch_and)(&words[4], (T)~bit, 0) & bit) == bit, #N " fetch_and"); \
        CHECK((FN(N, atomic_fetch_or)(&words[4], bit, 0) & bit) == 0, #N " fetch_or"); \
        shmem_barrier_all(); \
        CHECK(me != 0 || (words[0] == all && words[1] == 0 && words[2] == 0 && words[3] == all && words[4] == all), #N " bits"); \
        shmem_barrier_all(); \
    }
EACH_bitwise(CONTEND_BITS)

/* The old names. */
#define OLD_FETCHING(N, T) \
    static void old_fetching_##N(T *words) { \
        int pe = (me + 1) % npes; \
        FN(N, set)(&words[me], (T)(me + 5), pe); \
        shmem_quiet(); \
        CHECK(FN(N, fetch)(&words[me], pe) == (T)(me + 5), #N); \
        CHECK(FN(N, swap)(&words[me], (T)7, pe) == (T)(me + 5), #N); \
        CHECK(FN(N, fetch)(&words[me], pe) == (T)7, #N); \
        shmem_barrier_all(); \
    }
#define OLD_ADDING(N, T) \
    static void old_adding_##N(T *words) { \
        int pe = (me + 1) % npes; \
        FN(N, set)(&words[me], (T)-1, pe); \
        shmem_quiet(); \
        CHECK(FN(N, finc)(&words[me], pe) == (T)-1, #N); \
        FN(N, inc)(&words[me], pe); \
        FN(N, add)(&words[me], (T)40, pe); \
        shmem_quiet(); \
        CHECK(FN(N, fadd)(&words[me], (T)-1, pe) == (T)41, #N); \
        CHECK(FN(N, cswap)(&words[me], (T)41, (T)9, pe) == (T)40, #N); \
        CHECK(FN(N, cswap)(&words[me], (T)40, (T)9, pe) == (T)40, #N); \
        CHECK(FN(N, fetch)(&words[me], pe) == (T)9, #N); \
        shmem_barrier_all(); \
    }
EACH_fetching(OLD_FETCHING)
EACH_adding(OLD_ADDING)

static uint64_t statics[64];

int main(void) {
    begin();
    make_ways();
    void *heap = shmem_malloc(sizeof statics);
    int round = 0;
#define PLACE(T) (T *)(round % 2 ? heap : statics)
#define RUN_EXTENDED(N, T) for (int w = 0; w < nways; w++, round++) if (chosen(round)) sequence_extended_##N(&ways[w], PLACE(T), round);
#define RUN_AMO(N, T) for (int w = 0; w < nways; w++, round++) if (chosen(round)) sequence_amo_##N(&ways[w], PLACE(T), round);
#define RUN_BITWISE(N, T) for (int w = 0; w < nways; w++, round++) if (chosen(round)) sequence_bitwise_##N(&ways[w], PLACE(T), round);
    EACH_extended(RUN_EXTENDED)
    EACH_amo(RUN_AMO)
    EACH_bitwise(RUN_BITWISE)
#define RUN_CONTEND(N, T) round++; if (chosen(round)) contend_##N(PLACE(T));
#define RUN_BITS(N, T) round++; if (chosen(round)) contend_bits_##N(PLACE(T));
    EACH_amo(RUN_CONTEND)
    EACH_bitwise(RUN_BITS)
#define RUN_OLD_FETCHING(N, T) round++; old_fetching_##N(PLACE(T));
#define RUN_OLD_ADDING(N, T) round++; old_adding_##N(PLACE(T));
    EACH_fetching(RUN_OLD_FETCHING)
    EACH_adding(RUN_OLD_ADDING)
    return finish();
}
