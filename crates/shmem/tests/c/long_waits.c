/* PE 0 holds a lock that PE 1 wants, and waits for a word. PE 2 is in a reduction. With an argument: a put to no PE. */

#include <shmem.h>

static long lock, locked;

int main(int argc, char **argv)
{
    shmem_init();
    int me = shmem_my_pe();
    if (argc > 1 && argv)
        shmem_long_p(&locked, 1, 99);
    long *word = shmem_malloc(4 * sizeof(long));
    word[0] = word[1] = 0;
    word[2] = 1;
    shmem_barrier_all();
    if (me == 0) {
        shmem_set_lock(&lock);
        shmem_long_p(&locked, 1, 1);
        shmem_long_wait_until(&word[2], SHMEM_CMP_GT, 5);
    } else if (me == 1) {
        shmem_long_wait_until(&locked, SHMEM_CMP_EQ, 1);
        shmem_set_lock(&lock);
    } else {
        shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &word[0], &word[1], 1);
    }
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
