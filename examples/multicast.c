/* One PE publishes blocks to all others: `oshcc examples/multicast.c -o multicast`, then
   `memonet run --machine dimmnet-2/lossy -n 4 ./multicast [BLOCKS]`.

   Each reader gets each block whole, once and in order, also where links lose packets. The library
   chooses how blocks travel; PE 0 says how, and how long they took. */
#include <shmem.h>
#include <shmemx.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MOST_WORDS 5000

static double millis(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

/* Blocks of no word up to MOST_WORDS; each word says where it belongs. */
static size_t fill(uint64_t *words, uint64_t block)
{
    size_t count = block * 997 % (MOST_WORDS + 1);
    for (size_t i = 0; i < count; i++)
        words[i] = block << 32 | i;
    return count;
}

/* How many blocks came, all of them right, until the writer had destroyed its end. */
static uint64_t receive_all(shmemx_multicast_t channel)
{
    static uint64_t came[MOST_WORDS], right[MOST_WORDS];
    uint64_t block = 0;
    size_t bytes;
    for (; shmemx_multicast_receive(channel, came, sizeof came, &bytes) == 1; block++) {
        size_t count = fill(right, block);
        int same = bytes == count * sizeof *right;
        for (size_t i = 0; same && i < count; i++)
            same = came[i] == right[i];
        if (!same) {
            fprintf(stderr, "PE %d: block %lu is wrong\n", shmem_my_pe(), (unsigned long)block);
            shmem_global_exit(1);
        }
    }
    return block;
}

int main(int argc, char **argv)
{
    static uint64_t words[MOST_WORDS];
    uint64_t blocks = argc > 1 ? strtoull(argv[1], NULL, 10) : 100;
    shmem_init();
    int me = shmem_my_pe(), npes = shmem_n_pes();
    int *readers = malloc(npes * sizeof *readers);
    for (int pe = 1; pe < npes; pe++)
        readers[pe - 1] = pe;
    shmemx_multicast_t channel;
    if (!readers || shmemx_multicast_create(0, readers, npes - 1, 0, &channel) != 0)
        shmem_global_exit(1);
    free(readers);
    const char *way = shmemx_multicast_delivery(channel);
    double begin = millis();
    for (uint64_t block = 0; me == 0 && block < blocks; block++)
        shmemx_multicast_publish(channel, words, fill(words, block) * sizeof *words);
    if (me == 0)
        shmemx_multicast_destroy(channel);
    uint64_t came = me == 0 ? blocks : receive_all(channel);
    if (me != 0)
        shmemx_multicast_destroy(channel);
    shmem_barrier_all();
    if (me == 0)
        printf("%s: %.3f ms\n", way, millis() - begin);
    if (came != blocks)
        shmem_global_exit(1);
    shmem_finalize();
    return 0;
}
