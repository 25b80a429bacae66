/* Makes each call a known number of times, also on static data. */
#include <shmem.h>

static long flag;
static long block[8];

int main(void)
{
    shmem_init();
    int next = (shmem_my_pe() + 1) % shmem_n_pes();
    long *count = shmem_malloc(2 * sizeof *count);
    for (long round = 1; round <= 5; round++) {
        long values[8] = {round};
        shmem_long_put(block, values, 8, next);
        shmem_fence();
        shmem_long_p(&flag, round, next);
        shmem_long_wait_until(&flag, SHMEM_CMP_GE, round);
        shmem_long_atomic_inc(count, 0);
        shmem_barrier_all();
    }
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, count + 1, count, 1);
    shmem_finalize();
    return 0;
}
