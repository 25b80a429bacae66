/* Becomes another program before it initialises the library: this one, or that of its first argument. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two of what a program may have: with a value, and not. More than a page, so that one is all of the program's own. */
static long table[4096] = {17};
static char zeros[100000];

int main(int argc, char **argv) {
    if (argc > 1) {
        /* What this program leaves there, the next must not find. */
        table[0] = -1;
        memset(zeros, 'x', sizeof zeros);
        setenv("SET_BEFORE", "yes", 1);
        execv(argv[1], argv + 1);
        perror(argv[1]);
        return 1;
    }
    if (table[0] != 17) return printf("found %ld\n", table[0]), 1;
    for (size_t i = 0; i < sizeof zeros; i++)
        if (zeros[i]) return printf("found %d at %zu\n", zeros[i], i), 1;
    shmem_init();
    const int me = shmem_my_pe(), npes = shmem_n_pes(), next = (me + 1) % npes;
    shmem_long_p(&table[1], 100 + me, next);
    shmem_char_p(&zeros[sizeof zeros - 1], (char)('a' + me), next);
    shmem_barrier_all();
    printf("%d of %d: %ld %c %s\n", me, npes, table[1], zeros[sizeof zeros - 1], getenv("SET_BEFORE"));
    shmem_finalize();
    return 0;
}
