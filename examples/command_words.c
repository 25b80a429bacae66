/* SR2201's remote DMA, call by call: `oshcc examples/command_words.c -o command_words`, then
   `memonet run --machine sr2201 -n 2 ./command_words [BYTES]`. command_words.rs is the same in Rust.

   Two PEs build one command word each and start it again and again, to and fro. Then PE 0 takes
   back a receive area that it has allowed. */
#include <shmem.h>
#include <shmemx.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 100

static double micros(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

/* The time of one way, in microseconds. */
static double to_and_fro(int me, size_t words)
{
    uint64_t *to = shmem_calloc(words, sizeof *to);
    uint64_t *source = shmem_calloc(words, sizeof *source);
    uint64_t *flag = shmem_calloc(1, sizeof *flag);
    shmemx_transfer_t word = shmemx_transfer_prepare_signal(
        to, source, words * sizeof *to, flag, 1, SHMEM_SIGNAL_SET, 1 - me);
    shmem_barrier_all();
    double begin = micros();
    for (uint64_t round = 1; round <= 2 * ROUNDS; round++) {
        if (round % 2 == (uint64_t)me) {
            for (size_t i = 0; i < words; i++)
                source[i] = round;
            shmemx_transfer_start(word);
            while (!shmemx_transfer_test(word))
                ;
        } else {
            shmem_uint64_wait_until(flag, SHMEM_CMP_EQ, 1);
            *flag = 0;
            if (to[words - 1] != round) {
                fprintf(stderr, "the flag came before the data\n");
                shmem_global_exit(1);
            }
        }
    }
    double taken = (micros() - begin) / (2 * ROUNDS);
    shmem_barrier_all();
    shmemx_transfer_free(word);
    shmem_free(flag);
    shmem_free(source);
    shmem_free(to);
    return taken;
}

/* Each PE may write the other's area. */
static int right(int home, int holder)
{
    (void)home, (void)holder;
    return SHMEMX_ACCESS_READ_WRITE;
}

/* What PE 1 writes into PE 0's area before PE 0 takes that back is there, and nothing after. */
static void take_back(int me)
{
    shmemx_window_t area;
    if (shmemx_window_create(sizeof(uint64_t), right, &area) != 0)
        shmem_global_exit(1);
    uint64_t value = 42;
    if (me == 1 && shmemx_window_put(area, 0, &value, sizeof value, 0) != 0)
        shmem_global_exit(1);
    shmem_barrier_all();
    if (me == 0)
        shmemx_window_revoke(area);
    shmem_barrier_all();
    value = UINT64_MAX;
    if (me == 1)
        printf("%s\n", shmemx_window_put(area, 0, &value, sizeof value, 0) ? "refused" : "written");
    shmem_barrier_all();
    if (me == 0 && *(uint64_t *)shmemx_window_local(area) != 42)
        shmem_global_exit(1);
    shmemx_window_free(area);
}

int main(int argc, char **argv)
{
    size_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 8;
    size_t words = bytes > 8 ? (bytes + 7) / 8 : 1;
    shmem_init();
    int me = shmem_my_pe();
    if (shmem_n_pes() != 2) {
        fprintf(stderr, "command_words needs two PEs: memonet run -n 2\n");
        shmem_global_exit(2);
    }
    double one_way = to_and_fro(me, words);
    if (me == 0)
        printf("one way of %zu bytes: %.2f us\n", 8 * words, one_way);
    take_back(me);
    shmem_finalize();
    return 0;
}
