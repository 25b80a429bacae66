// Operations of each kind on each PE, as many as stats.rs says: on the heap and on static data.
#include <shmem.h>
#include <string.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

static long words[8];
static uint64_t signal_word;

int main(int argc, char **argv) {
    shmem_init();
    int npes = shmem_n_pes();
    if (argc > 1 && !strcmp(argv[1], "fail")) {
        // The others wait for one that does not come.
        if (shmem_my_pe() == 1) {
            usleep(50000);
            _exit(3);
        }
        shmem_barrier_all();
    }
    long *heap = shmem_malloc(64 * sizeof(long)), block[16] = {0};
    for (int pe = 0; pe < npes; pe++) {
        for (int i = 0; i < 5; i++) shmem_long_p(&heap[63], i, pe);
        for (int i = 0; i < 2; i++) shmem_long_p(&words[7], i, pe);
        for (int i = 0; i < 4; i++) (void)shmem_long_g(&heap[1], pe);
        for (int i = 0; i < 3; i++) shmem_putmem(heap, block, sizeof block, pe);
        shmem_long_put_nbi(words, block, 4, pe);
        shmem_long_get(block, heap, 16, pe);
        shmem_long_iput(heap, block, 2, 1, 4, pe);
        shmem_long_atomic_add(&words[0], 1, pe);
        for (int i = 0; i < 3; i++) (void)shmem_long_atomic_fetch_add(&heap[0], 1, pe);
        (void)shmem_long_atomic_fetch(&heap[0], pe);
        shmem_quiet();
        shmem_long_put_signal(heap, block, 8, &signal_word, 1, SHMEM_SIGNAL_ADD, pe);
        shmem_signal_add(&signal_word, 1, pe);
    }
    shmem_barrier_all();
    shmem_signal_wait_until(&signal_word, SHMEM_CMP_EQ, 2 * npes);
    // A child is not the PE. On a simulated machine it makes no calls.
    if (argc > 1) {
        pid_t child = fork();
        if (child == 0) {
            shmem_long_p(&heap[2], 1, shmem_my_pe());
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    shmem_barrier_all();
    shmem_finalize();
    return 0;
}
