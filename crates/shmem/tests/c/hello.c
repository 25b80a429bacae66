/* Valid C99, C11 and C++. */
#include <shmem.h>
#include <stdio.h>

static int number = 5;

int main(void) {
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes();
    shmem_int_p(&number, me, (me + 1) % n);
    shmem_barrier_all();
    printf("PE %d of %d: %d\n", me, n, number);
    shmem_finalize();
    return number != (me + n - 1) % n;
}
