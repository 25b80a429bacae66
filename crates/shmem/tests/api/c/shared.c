/* Shared data: variables bound to a mutex, tries and time limits, readers and writers, pointers into regions, statistics; and all
   of it by several threads of each PE. */
#include <pthread.h>
#include "test.h"

enum { THREADS = 3, ROUNDS = 30, NUMBERS = 700 };
static long words[2];
static int all_near = 1;

/* Three variables of one lock: each PE has them where they were, and sees what the last holder made of all of them. */
static void variables(void) {
    struct { long turns; double numbers[NUMBERS]; char text[5]; } __attribute__((packed)) initial;
    size_t sizes[] = { sizeof initial.turns, sizeof initial.numbers, sizeof initial.text };
    shmemx_mutex_t mutex, zeros;
    initial.turns = 7;
    for (int i = 0; i < NUMBERS; i++) initial.numbers[i] = i;
    memcpy(initial.text, "abcde", 5);
    CHECK(shmemx_mutex_create_variables(&initial, sizes, 3, &mutex) == 0, "variables");
    CHECK(shmemx_mutex_create_variables(NULL, sizes, 3, &zeros) == 0, "variables of zeros");
    long *turns = (long *)shmemx_mutex_variable(mutex, 0);
    double *numbers = (double *)shmemx_mutex_variable(mutex, 1);
    char *text = (char *)shmemx_mutex_variable(mutex, 2);
    CHECK((uintptr_t)turns % 16 == 0 && (uintptr_t)numbers % 16 == 0 && (uintptr_t)text % 16 == 0, "aligned for any type");
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(shmemx_mutex_acquire(mutex) == turns, "the first variable is where the data begin");
        int at = (int)(*turns % NUMBERS);
        CHECK(numbers[at] >= at && text[4] == (*turns == 7 ? 'e' : 'A' + (*turns - 1) % 26), "after %ld turns", *turns);
        text[4] = (char)('A' + *turns % 26);
        numbers[at] += 1000;
        ++*turns;
        shmemx_mutex_release(mutex);
    }
    shmem_barrier_all();
    shmemx_mutex_acquire(mutex);
    double sum = 0;
    for (int i = 0; i < NUMBERS; i++) sum += numbers[i] - i;
    CHECK(*turns == 7 + ROUNDS * npes && sum == 1000.0 * ROUNDS * npes && memcmp(text, "abcd", 4) == 0, "%ld turns", *turns);
    CHECK(shmemx_mutex_variable(mutex, 1) == numbers && shmemx_mutex_variable(mutex, 2) == text, "still there");
    shmemx_mutex_release(mutex);
    shmemx_mutex_acquire(zeros);
    numbers = (double *)shmemx_mutex_variable(zeros, 1);
    for (int i = 0; i < NUMBERS; i++) CHECK(numbers[i] == 0, "zeros");
    shmemx_mutex_release(zeros);
    shmem_barrier_all();
    shmemx_mutex_destroy(mutex);
    shmemx_mutex_destroy(zeros);
}

/* What a PE holds, others do not get by trying or within a time; when it is free, they do. */
static void limits(void) {
    shmemx_mutex_t mutex;
    shmemx_rwlock_t rwlock;
    CHECK(shmemx_mutex_create(NULL, 8, &mutex) == 0 && shmemx_rwlock_create(NULL, 8, &rwlock) == 0, "locks");
    if (me == 0) {
        CHECK(shmemx_mutex_try_acquire(mutex) != NULL, "nobody has the mutex");
        CHECK(shmemx_rwlock_try_acquire_write(rwlock) != NULL, "nobody has the lock");
    }
    shmem_barrier_all();
    if (me != 0) {
        CHECK(shmemx_mutex_try_acquire(mutex) == NULL && shmemx_mutex_timed_acquire(mutex, 0.002) == NULL, "the mutex is taken");
        CHECK(!shmemx_rwlock_try_acquire_read(rwlock) && !shmemx_rwlock_timed_acquire_read(rwlock, 0.002), "a writer is in");
        CHECK(!shmemx_rwlock_try_acquire_write(rwlock) && !shmemx_rwlock_timed_acquire_write(rwlock, 0.002), "a writer is in");
    }
    shmem_barrier_all();
    if (me == 0) {
        shmemx_mutex_release(mutex);
        shmemx_rwlock_release(rwlock);
    }
    long *count = (long *)shmemx_mutex_timed_acquire(mutex, 60);
    CHECK(count != NULL, "the mutex is free within a minute");
    ++*count;
    shmemx_mutex_release(mutex);
    /* All read at once. */
    CHECK(shmemx_rwlock_timed_acquire_read(rwlock, 60) != NULL, "only readers are in");
    shmem_barrier_all();
    CHECK(!shmemx_rwlock_try_acquire_write(rwlock) && !shmemx_rwlock_timed_acquire_write(rwlock, 0), "readers are in");
    shmem_barrier_all();
    shmemx_rwlock_release(rwlock);
    long *number = (long *)shmemx_rwlock_timed_acquire_write(rwlock, 60);
    CHECK(number != NULL, "the lock is free within a minute");
    ++*number;
    shmemx_rwlock_release(rwlock);
    shmem_barrier_all();
    count = (long *)shmemx_mutex_acquire(mutex);
    CHECK(*count == npes && *(const long *)shmemx_rwlock_acquire_read(rwlock) == npes, "each was in once");
    shmemx_mutex_release(mutex);
    shmemx_rwlock_release(rwlock);
    shmem_barrier_all();
    shmemx_mutex_destroy(mutex);
    shmemx_rwlock_destroy(rwlock);
}

struct pair { long number, copy, more[100]; };
static shmemx_mutex_t counted;
static shmemx_rwlock_t table;
static pthread_barrier_t together;

/* A thread of a PE: it changes the data of the mutex and of the lock, and never sees half a change. */
static void *work(void *argument) {
    int thread = (int)(intptr_t)argument;
    for (int round = 0; round < ROUNDS; round++) {
        struct pair *pair = (struct pair *)shmemx_mutex_acquire(counted);
        CHECK(pair->number == pair->copy, "thread %d: somebody else is in", thread);
        pair->number++;
        pair->more[(round + thread) % 100]++;
        pair->copy++;
        shmemx_mutex_release(counted);
        if ((round + thread) % 3 == 0) {
            pair = (struct pair *)shmemx_rwlock_acquire_write(table);
            CHECK(pair->number == pair->copy, "thread %d: somebody writes beside a writer", thread);
            pair->number++;
            pair->copy++;
        } else {
            const struct pair *read = (const struct pair *)shmemx_rwlock_acquire_read(table);
            CHECK(read->number == read->copy, "thread %d: somebody writes beside a reader", thread);
        }
        shmemx_rwlock_release(table);
    }
    /* No writer comes any more, behind which a reader would wait for one that waits for it. */
    pthread_barrier_wait(&together);
    if (thread == 0) shmem_barrier_all();
    pthread_barrier_wait(&together);
    /* The threads of a PE read together, and each gives back its own. */
    CHECK(shmemx_rwlock_acquire_read(table) != NULL, "readers enter together");
    pthread_barrier_wait(&together);
    shmemx_rwlock_release(table);
    return NULL;
}

static void threads(void) {
    struct pair initial = { 3, 3, { 0 } };
    pthread_t others[THREADS];
    int writes = 0;
    CHECK(shmemx_mutex_create(&initial, sizeof initial, &counted) == 0, "a mutex");
    CHECK(shmemx_rwlock_create(&initial, sizeof initial, &table) == 0, "a lock");
    pthread_barrier_init(&together, NULL, THREADS);
    for (int t = 0; t < THREADS; t++) pthread_create(&others[t], NULL, work, (void *)(intptr_t)t);
    for (int t = 0; t < THREADS; t++) pthread_join(others[t], NULL);
    for (int t = 0; t < THREADS; t++)
        for (int round = 0; round < ROUNDS; round++) writes += (round + t) % 3 == 0;
    shmem_barrier_all();
    const struct pair *pair = (const struct pair *)shmemx_mutex_acquire(counted);
    long sum = 0;
    for (int i = 0; i < 100; i++) sum += pair->more[i];
    CHECK(pair->number == 3 + ROUNDS * THREADS * npes && sum == ROUNDS * THREADS * npes, "%ld, %ld", pair->number, sum);
    shmemx_mutex_release(counted);
    pair = (const struct pair *)shmemx_rwlock_acquire_read(table);
    CHECK(pair->number == 3 + writes * npes, "%ld of %d writes", pair->number, writes * npes);
    shmemx_rwlock_release(table);
    shmem_barrier_all();
    shmemx_mutex_destroy(counted);
    shmemx_rwlock_destroy(table);
    pthread_barrier_destroy(&together);
}

/* Pointers into a region: each PE writes every so-many-th page in place, and reads all of them so. */
static void pointers(void) {
    enum { PAGE = 256, PAGES = 40 };
    static const int placements[] = { SHMEMX_REGION_BLOCK, SHMEMX_REGION_CYCLIC, SHMEMX_REGION_FIRST_TOUCH, SHMEMX_REGION_CHECKED };
    for (int p = 0; p < 4; p++) {
        shmemx_region_t region;
        CHECK(shmemx_region_create(PAGE * PAGES, PAGE, placements[p], &region) == 0, "a region");
        for (int round = 1; round <= 4; round++) {
            for (int page = me; page < PAGES; page += npes) {
                int *numbers = (int *)shmemx_region_start_write(region, PAGE * page, PAGE);
                CHECK(numbers != NULL, "a page lies together");
                for (int i = 0; i < PAGE / 4; i++) numbers[i] = round * 1000 + page + i;
                shmemx_region_end(region, numbers);
            }
            CHECK(shmemx_region_release(region) == 0, "no race");
            shmem_barrier_all();
            CHECK(shmemx_region_acquire(region) == 0, "no race");
            for (int page = 0; page < PAGES; page++) {
                const int *numbers = (const int *)shmemx_region_start_read(region, PAGE * page + 8, PAGE - 8);
                const int *again = (const int *)shmemx_region_start_read(region, PAGE * page + 8, 4);
                CHECK(numbers == again, "one place");
                shmemx_region_end(region, again);
                for (int i = 2; i < PAGE / 4; i++) CHECK(numbers[i - 2] == round * 1000 + page + i, "page %d in round %d", page, round);
                shmemx_region_end(region, numbers);
            }
            shmem_barrier_all();
        }
        /* All pages at once lie together where this PE has copies of them, or is home of all. */
        const void *whole = shmemx_region_start_read(region, 0, PAGE * PAGES);
        CHECK(whole != NULL || (all_near && npes > 1), "copies lie together");
        if (whole) shmemx_region_end(region, whole);
        shmemx_stats_t stats;
        shmemx_region_stats(region, &stats);
        CHECK(stats.uses > 0 && stats.hits <= stats.uses, "%ld uses", (long)stats.uses);
        shmem_barrier_all();
        shmemx_region_destroy(region);
    }
}

/* Each use is counted; between PEs that share no memory, so are messages, and the data that came. */
static void statistics(void) {
    enum { BYTES = 4000 };
    shmemx_mutex_t mutex;
    shmemx_rwlock_t rwlock;
    shmemx_stats_t first, last, mine;
    CHECK(shmemx_mutex_create(NULL, BYTES, &mutex) == 0 && shmemx_rwlock_create(NULL, BYTES, &rwlock) == 0, "locks");
    shmemx_mutex_stats(mutex, &first);
    for (int pe = 0; pe < npes; pe++) {
        if (me == pe) {
            char *data = (char *)shmemx_mutex_acquire(mutex);
            data[pe * 100]++;
            shmemx_mutex_release(mutex);
            data = (char *)shmemx_rwlock_acquire_write(rwlock);
            data[pe * 100]++;
            shmemx_rwlock_release(rwlock);
        }
        shmem_barrier_all();
    }
    shmemx_mutex_stats(mutex, &last);
    shmemx_rwlock_stats(rwlock, &mine);
    CHECK(first.uses == 0 && last.uses == 1 && mine.uses == 1, "%ld and %ld uses", (long)last.uses, (long)mine.uses);
    CHECK(!all_near || npes == 1 || (last.hits == 1 && last.messages == 0 && mine.messages == 0), "nothing is sent by way of memory");
    /* The last one got what the others had changed. */
    int got = !all_near && npes > 1 && me == npes - 1;
    CHECK(!got || (last.hits == 0 && last.handovers == 1 && last.messages > 0 && last.bytes > 0), "%ld bytes came", (long)last.bytes);
    CHECK(!got || mine.messages > 0, "%ld messages of the lock", (long)mine.messages);
    shmem_barrier_all();
    shmemx_mutex_destroy(mutex);
    shmemx_rwlock_destroy(rwlock);
}

int main(void) {
    begin();
    for (int pe = 0; pe < npes; pe++) all_near &= shmem_ptr(words, pe) != NULL;
    variables();
    limits();
    threads();
    pointers();
    statistics();
    return finish();
}
