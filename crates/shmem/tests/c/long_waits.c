/* PE 0 holds a lock that PE 1 wants, and waits for a word. PE 2 is in a reduction. With an argument:
   wrong      a put to no PE
   supersteps PE 0 does not end its superstep
   stopped    PE 0 is stopped, and the others read its memory */

#include <shmem.h>
#include <shmemx.h>
#include <signal.h>
#include <string.h>

static long lock, locked;

static void supersteps(int me, long *word)
{
    shmemx_supersteps_t steps;
    if (shmemx_supersteps_create(8, 0, &steps))
        shmem_global_exit(3);
    if (me == 0)
        shmem_long_wait_until(word, SHMEM_CMP_GT, 5);
    shmemx_supersteps_step(steps);
}

static void stopped(int me, const long *word)
{
    long seen[3];
    if (me == 0)
        raise(SIGSTOP);
    /* Until no answer comes. */
    while (me == 1)
        shmem_long_get(seen, word, 3, 0);
    while (me == 2)
        seen[0] = shmem_long_g(word, 0);
    (void)seen;
}

int main(int argc, char **argv)
{
    shmem_init();
    int me = shmem_my_pe();
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "wrong"))
        shmem_long_p(&locked, 1, 99);
    long *word = shmem_malloc(4 * sizeof(long));
    word[0] = word[1] = 0;
    word[2] = 1;
    shmem_barrier_all();
    if (!strcmp(what, "supersteps")) {
        supersteps(me, word);
    } else if (!strcmp(what, "stopped")) {
        stopped(me, word);
    } else if (me == 0) {
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
