/* What a benchmark does, knowing nothing of simulated machines: static data, the heap, waits, tests, collectives, and every clock there is. */
#include <poll.h>
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

static long word;
static long sums[8], values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static char text[100000];

static int64_t nanos(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Words to and fro; how long that took. */
static int64_t ping_pong(int me, long times)
{
    int64_t start = nanos();
    for (long round = 1; round <= times && me < 2; round++) {
        if (me == 0)
            shmem_long_p(&word, round, 1);
        if (round % 2)
            shmem_long_wait_until(&word, SHMEM_CMP_GE, round);
        else
            while (!shmem_long_test(&word, SHMEM_CMP_GE, round))
                ;
        if (me == 1)
            shmem_long_p(&word, round, 0);
    }
    return nanos() - start;
}

int main(int argc, char **argv)
{
    int64_t begun = nanos();
    shmem_init();
    int me = shmem_my_pe(), npes = shmem_n_pes(), next = (me + 1) % npes;
    int timed = argc > 1 && atoi(argv[1]);

    shmem_barrier_all();
    int64_t taken = ping_pong(me, 20);
    shmem_barrier_all();

    long *count = shmem_calloc(1, sizeof *count);
    char *block = shmem_malloc(sizeof text);
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 3 + me);
    shmem_putmem(block, text, sizeof text, next);
    shmem_quiet();
    shmem_getmem(text, block, sizeof text, next);
    int whole = 1;
    for (size_t i = 0; i < sizeof text; i++)
        whole &= text[i] == (char)(i * 3 + me);
    shmem_long_atomic_add(count, me + 1, 0);
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, sums, values, 8);
    shmem_barrier_all();
    printf("%d: %ld %ld %ld %d\n", me, shmem_long_atomic_fetch(count, 0), sums[0], sums[7], whole);

    if (timed) {
        struct timeval before, after;
        gettimeofday(&before, NULL);
        time_t date = time(NULL);
        int64_t start = nanos();
        clock_t cpu = clock();
#ifdef __x86_64__
        unsigned aux;
        uint64_t cycle = __rdtsc(), precise = __rdtscp(&aux);
#endif
        sleep(3);
        usleep(500000);
        nanosleep(&(struct timespec){.tv_nsec = 150000000}, NULL);
        int nobody[2], came = pipe(nobody);
        came += poll(NULL, 0, 40) + poll(&(struct pollfd){.fd = nobody[0], .events = POLLIN}, 1, 10);
        struct timeval tenth = {.tv_usec = 50000};
        came += select(0, NULL, NULL, NULL, &tenth);
        if (came != 0 || tenth.tv_usec != 0)
            printf("%d: something came from nobody\n", me);
        gettimeofday(&after, NULL);
        printf("%d: slept for %ld ns, %ld us, %d s, %d s of CPU", me, (long)(nanos() - start),
               (long)((after.tv_sec - before.tv_sec) * 1000000 + after.tv_usec - before.tv_usec), (int)(time(NULL) - date),
               (int)((clock() - cpu) / CLOCKS_PER_SEC));
#ifdef __x86_64__
        printf(", %ld and %ld cycles", (long)(__rdtsc() - cycle), (long)(__rdtscp(&aux) - precise));
#endif
        printf(", %d\n", system("sleep 0.01"));
        printf("%d: %d %d\n", me, begun < 1000000000, npes < 2 || shmem_ptr(&word, next) == NULL);
        if (me < 2)
            printf("%d: took %ld\n", me, (long)taken);
    }
    shmem_finalize();
    return 0;
}
