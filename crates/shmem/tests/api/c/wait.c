/* Waiting for words and testing them: every call and comparison, for every type, on values near the ends of its range, with and
   without a mask; sets that are empty; fairness; and words that are written while somebody waits. */
#include "test.h"

enum { WORDS = 9 };
static uint64_t statics[WORDS * 2], *heap;
static const int comparisons[] = {SHMEM_CMP_EQ, SHMEM_CMP_NE, SHMEM_CMP_GT, SHMEM_CMP_GE, SHMEM_CMP_LT, SHMEM_CMP_LE};

#define HOLDS(cmp, a, b) \
    ((cmp) == SHMEM_CMP_EQ ? (a) == (b) : (cmp) == SHMEM_CMP_NE ? (a) != (b) : (cmp) == SHMEM_CMP_GT ? (a) > (b) \
        : (cmp) == SHMEM_CMP_GE ? (a) >= (b) : (cmp) == SHMEM_CMP_LT ? (a) < (b) : (a) <= (b))

/* Whether exactly the words that are said to hold are listed. */
static int lists(const size_t *indices, size_t found, const int *holds) {
    int seen[WORDS] = {0};
    size_t expected = 0;
    for (int i = 0; i < WORDS; i++) expected += holds[i];
    for (size_t i = 0; i < found; i++) {
        if (indices[i] >= WORDS || seen[indices[i]]++ || !holds[indices[i]]) return 0;
    }
    return found == expected;
}

/* All calls on words that do not change. Those that wait are called where there is nothing to wait for. */
#define STANDING(N, T) \
    static void standing_##N(T *words, int cmp, int masked, int round) { \
        T low = (T)((uint64_t)1 << (8 * sizeof(T) - 1)), values[] = {0, 1, (T)-1, low, (T)(low - 1), 42}; \
        T value = values[round % 6], each[WORDS]; \
        int status[WORDS], holds[WORDS], holds_each[WORDS], some = 0, some_each = 0, all = 1, all_each = 1, counting = 0; \
        size_t indices[WORDS]; \
        for (int i = 0; i < WORDS; i++) { \
            uint64_t random = noise(round, i, me); \
            words[i] = values[random % 6]; \
            each[i] = values[random / 6 % 6]; \
            status[i] = masked ? random >> 32 & 1 ? 0 : -3 : 0; \
            counting += status[i] == 0; \
            holds[i] = status[i] == 0 && HOLDS(cmp, words[i], value); \
            holds_each[i] = status[i] == 0 && HOLDS(cmp, words[i], each[i]); \
            some += holds[i], some_each += holds_each[i]; \
            all = all && (status[i] || holds[i]), all_each = all_each && (status[i] || holds_each[i]); \
            CHECK((FN(N, test)(&words[i], cmp, value) != 0) == HOLDS(cmp, words[i], value), #N " test %d", cmp); \
            if (HOLDS(cmp, words[i], value)) FN(N, wait_until)(&words[i], cmp, value); \
        } \
        const int *mask = masked ? status : NULL; \
        CHECK((FN(N, test_all)(words, WORDS, mask, cmp, value) != 0) == all, #N " test_all %d", cmp); \
        CHECK((FN(N, test_all_vector)(words, WORDS, mask, cmp, each) != 0) == all_each, #N " test_all_vector %d", cmp); \
        if (all) FN(N, wait_until_all)(words, WORDS, mask, cmp, value); \
        if (all_each) FN(N, wait_until_all_vector)(words, WORDS, mask, cmp, each); \
        CHECK(lists(indices, FN(N, test_some)(words, WORDS, indices, mask, cmp, value), holds), #N " test_some %d", cmp); \
        CHECK(lists(indices, FN(N, test_some_vector)(words, WORDS, indices, mask, cmp, each), holds_each), #N " test_some_vector %d", cmp); \
        if (some || !counting) CHECK(lists(indices, FN(N, wait_until_some)(words, WORDS, indices, mask, cmp, value), holds), #N " some %d", cmp); \
        if (some_each || !counting) \
            CHECK(lists(indices, FN(N, wait_until_some_vector)(words, WORDS, indices, mask, cmp, each), holds_each), #N " some_vector %d", cmp); \
        /* A series of calls tells of all of them. */ \
        int told[WORDS] = {0}, told_each[WORDS] = {0}, waited[WORDS] = {0}, waited_each[WORDS] = {0}; \
        for (int i = 0; i < 3 * WORDS; i++) { \
            size_t any = FN(N, test_any)(words, WORDS, mask, cmp, value); \
            CHECK(some ? any < WORDS && holds[any] : any == SIZE_MAX, #N " test_any %d", cmp); \
            if (some) told[any] = 1; \
            any = FN(N, test_any_vector)(words, WORDS, mask, cmp, each); \
            CHECK(some_each ? any < WORDS && holds_each[any] : any == SIZE_MAX, #N " test_any_vector %d", cmp); \
            if (some_each) told_each[any] = 1; \
        } \
        for (int i = 0; i < 3 * WORDS; i++) { \
            size_t any = some || !counting ? FN(N, wait_until_any)(words, WORDS, mask, cmp, value) : SIZE_MAX; \
            CHECK(some ? any < WORDS && holds[any] : any == SIZE_MAX, #N " any %d", cmp); \
            if (some) waited[any] = 1; \
        } \
        for (int i = 0; i < 3 * WORDS; i++) { \
            size_t any = some_each || !counting ? FN(N, wait_until_any_vector)(words, WORDS, mask, cmp, each) : SIZE_MAX; \
            CHECK(some_each ? any < WORDS && holds_each[any] : any == SIZE_MAX, #N " any_vector %d", cmp); \
            if (some_each) waited_each[any] = 1; \
        } \
        CHECK(memcmp(waited, holds, sizeof holds) == 0, #N " any: all that hold are told of, %d", cmp); \
        CHECK(memcmp(waited_each, holds_each, sizeof holds) == 0, #N " any_vector: all that hold are told of, %d", cmp); \
        for (int i = 0; i < WORDS; i++) CHECK(told[i] <= holds[i] && told_each[i] <= holds_each[i], #N); \
    }
EACH_waiting(STANDING)

/* Nothing to wait for: no words at all, or none that counts. */
#define EMPTY(N, T) \
    static void empty_##N(T *words) { \
        size_t indices[WORDS]; \
        int none[WORDS]; \
        T each[WORDS]; \
        for (int i = 0; i < WORDS; i++) words[i] = 0, none[i] = i + 1, each[i] = 5; \
        for (int masked = 0; masked < 2; masked++) { \
            size_t n = masked ? WORDS : 0; \
            T *at = masked ? words : NULL, *with = masked ? each : NULL; \
            const int *mask = masked ? none : NULL; \
            size_t *list = masked ? indices : NULL; \
            FN(N, wait_until_all)(at, n, mask, SHMEM_CMP_EQ, (T)5); \
            FN(N, wait_until_all_vector)(at, n, mask, SHMEM_CMP_EQ, with); \
            CHECK(FN(N, wait_until_any)(at, n, mask, SHMEM_CMP_EQ, (T)5) == SIZE_MAX, #N); \
            CHECK(FN(N, wait_until_any_vector)(at, n, mask, SHMEM_CMP_EQ, with) == SIZE_MAX, #N); \
            CHECK(FN(N, wait_until_some)(at, n, list, mask, SHMEM_CMP_EQ, (T)5) == 0, #N); \
            CHECK(FN(N, wait_until_some_vector)(at, n, list, mask, SHMEM_CMP_EQ, with) == 0, #N); \
            CHECK(FN(N, test_all)(at, n, mask, SHMEM_CMP_EQ, (T)5) == 1, #N); \
            CHECK(FN(N, test_all_vector)(at, n, mask, SHMEM_CMP_EQ, with) == 1, #N); \
            CHECK(FN(N, test_any)(at, n, mask, SHMEM_CMP_EQ, (T)5) == SIZE_MAX, #N); \
            CHECK(FN(N, test_any_vector)(at, n, mask, SHMEM_CMP_EQ, with) == SIZE_MAX, #N); \
            CHECK(FN(N, test_some)(at, n, list, mask, SHMEM_CMP_EQ, (T)5) == 0, #N); \
            CHECK(FN(N, test_some_vector)(at, n, list, mask, SHMEM_CMP_EQ, with) == 0, #N); \
        } \
    }
EACH_waiting(EMPTY)

/* The next PE writes while this one waits, and this one's answer lets it write the next word. */
#define MOVING(N, T, put) \
    static void moving_##N(T *words) { \
        T *acknowledged = words + WORDS, numbers[WORDS]; \
        int to = (me + 1) % npes, from = (me + npes - 1) % npes, status[WORDS] = {0}; \
        for (int i = 0; i < WORDS; i++) words[i] = 0, numbers[i] = (T)(i + 1); \
        *acknowledged = 0; \
        shmem_barrier_all(); \
        for (int i = 0; i < WORDS; i++) { \
            put(N)(&words[i], (T)(i + 1), to); \
            switch (i % 5) { \
            case 0: FN(N, wait_until)(&words[i], SHMEM_CMP_NE, (T)0); break; \
            case 1: CHECK(FN(N, wait_until_any)(words, WORDS, status, SHMEM_CMP_GT, (T)0) == (size_t)i, #N " any"); break; \
            case 2: { \
                size_t indices[WORDS]; \
                CHECK(FN(N, wait_until_some)(words, WORDS, indices, status, SHMEM_CMP_GE, (T)(i + 1)) == 1 && indices[0] == (size_t)i, #N " some"); \
                break; \
            } \
            case 3: while (!FN(N, test)(&words[i], SHMEM_CMP_EQ, (T)(i + 1))) sched_yield(); break; \
            case 4: FN(N, wait_until_all_vector)(words, i + 1, NULL, SHMEM_CMP_EQ, numbers); break; \
            } \
            CHECK(words[i] == (T)(i + 1), #N " word %d", i); \
            status[i] = 1; \
            FN(N, p)(acknowledged, (T)(i + 1), from); \
            FN(N, wait_until)(acknowledged, SHMEM_CMP_GE, (T)(i + 1)); \
        } \
        FN(N, wait_until_all)(words, WORDS, NULL, SHMEM_CMP_NE, (T)0); \
        shmem_barrier_all(); \
    }
#define BY_P(N) FN(N, p)
#define MOVING_P(N, T) MOVING(N, T, BY_P)
EACH_waiting(MOVING_P)

/* The old calls. */
#define OLD(N, T) \
    static void old_##N(T *word) { \
        *word = 3; \
        shmem_barrier_all(); \
        FN(N, p)(word, (T)4, (me + 1) % npes); \
        shmem_##N##_wait(word, (T)3); \
        CHECK(*word == 4, #N); \
        shmem_barrier_all(); \
    }
EACH_integers(OLD)

static void old(long *word) {
    *word = -1;
    shmem_barrier_all();
    FN(long, p)(word, -2L, (me + 1) % npes);
    shmem_wait(word, -1L);
    CHECK(*word == -2, "shmem_wait");
    shmem_barrier_all();
    FN(long, p)(word, 100L, (me + 1) % npes);
    /* In parentheses: the function, not the name for all types. */
    (shmem_wait_until)(word, SHMEM_CMP_GT, 99L);
    CHECK(*word == 100, "shmem_wait_until");
    shmem_barrier_all();
    CHECK((shmem_swap)(word, 1000L + me, (me + 1) % npes) == 100, "shmem_swap");
    shmem_barrier_all();
    CHECK(*word == 1000 + (me + npes - 1) % npes, "shmem_swap");
    shmem_barrier_all();
}

int main(void) {
    begin();
    heap = (uint64_t *)shmem_malloc(sizeof statics);
    int round = 0;
#define PLACE(T) (T *)(round % 2 ? heap : statics)
#define RUN(N, T) \
    for (int i = 0; i < 6 * 24; i++, round++) standing_##N(PLACE(T), comparisons[i % 6], i / 6 % 2, i); \
    empty_##N(PLACE(T)); \
    moving_##N(PLACE(T)); \
    round++;
    EACH_waiting(RUN)
#define RUN_OLD(N, T) old_##N(PLACE(T)); round++;
    EACH_integers(RUN_OLD)
    old((long *)statics);
    return finish();
}
