/* The reduced barrier code (RBC): one code for each phase, against an arrival and a wait.
 *
 *     oshcc -O2 -o rbc examples/rbc.c && memonet run -n 4 --machine scc ./rbc
 *
 * The code of phase k ends the phase before and opens the next: it passes once all PEs have made the code of phase k - 1, and the work
 * of a phase hides the barrier. On the machine `scc` barriers go by wires between boards, and the times printed are the machine's. */
#include <shmem.h>
#include <shmemx.h>
#include <stdio.h>
#include <time.h>

enum { PHASES = 100 };

static long made;

/* Up to 3 us, and different at each PE. */
static void work(long phase, int me)
{
    struct timespec time = {0, (phase * 997 + me * 1409) * 613 % 3000};
    nanosleep(&time, NULL);
}

/* The reduced code as the board answers it: 1 while the phase before is not complete, and 0 once this PE has arrived. */
static void reduced(shmemx_barrier_t barrier)
{
    while (shmemx_barrier_try_step(barrier))
        ;
}

/* Microseconds of a phase. */
static double timed(shmemx_barrier_t barrier, int me, int by_reduced_code)
{
    shmemx_barrier_arrive(barrier);
    shmemx_barrier_wait(barrier);
    double begin = shmemx_wtime();
    for (long phase = 1; phase <= PHASES; phase++) {
        work(phase, me);
        if (by_reduced_code) {
            reduced(barrier);
        } else {
            shmemx_barrier_arrive(barrier);
            shmemx_barrier_wait(barrier);
        }
    }
    double time = (shmemx_wtime() - begin) / PHASES * 1e6;
    shmemx_barrier_wait(barrier);
    return time;
}

int main(void)
{
    shmem_init();
    int me = shmem_my_pe(), npes = shmem_n_pes(), wrong = 0;
    shmemx_barrier_t barrier;
    if (shmemx_barrier_create(SHMEM_TEAM_WORLD, &barrier))
        shmem_global_exit(1);
    /* Phase k is passed when all PEs have made the code of phase k - 1, and none has passed phase k + 2. */
    for (long phase = 1; phase <= PHASES; phase++) {
        work(phase, me);
        shmem_long_p(&made, phase, me);
        reduced(barrier);
        for (int pe = 0; pe < npes && phase % 10 == 0; pe++) {
            long theirs = shmem_long_g(&made, pe);
            wrong += theirs < phase - 1 || theirs > phase + 2;
        }
    }
    shmemx_barrier_wait(barrier);
    /* The wires change hands between barriers: let this one have them. */
    timed(barrier, me, 0);
    double two_codes = timed(barrier, me, 0), one_code = timed(barrier, me, 1);
    if (me == 0)
        printf("a phase takes %.2f us by arrival and wait, %.2f us by the reduced code\n", two_codes, one_code);
    if (wrong)
        fprintf(stderr, "PE %d: %d phases were passed too early\n", me, wrong);
    shmemx_barrier_destroy(barrier);
    shmem_finalize();
    return wrong != 0;
}
