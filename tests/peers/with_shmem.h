/* The operations of measure.c in OpenSHMEM, as any version since 1.3 has them. */
#include <shmem.h>

/* Allocated: not everybody's static variables are symmetric. */
static long *sync_array[2], *work[2], *the_lock, *said;
static int turn_of_arrays;

static void begin(int *argc, char ***argv) {
    (void)argc, (void)argv;
    shmem_init();
    long *all = shmem_malloc(4200 * sizeof(long));
    for (int i = 0; i < 4200; i++) all[i] = i < 2048 ? SHMEM_SYNC_VALUE : 0;
    sync_array[0] = all, sync_array[1] = all + 1024, work[0] = all + 2048, work[1] = all + 3072, the_lock = all + 4112, said = all + 4160;
    shmem_barrier_all();
}
static void end(void) { shmem_finalize(); }
static int my_number(void) { return shmem_my_pe(); }
static int how_many(void) { return shmem_n_pes(); }
static void *symmetric(size_t bytes) {
    void *memory = shmem_malloc(bytes);
    if (!memory) {
        fprintf(stderr, "no symmetric memory\n");
        exit(1);
    }
    memset(memory, 0, bytes);
    shmem_barrier_all();
    return memory;
}
static inline void put_word(long *to, long value, int pe) { shmem_long_p(to, value, pe); }
static inline void wait_word(long *word, long value) { shmem_long_wait_until(word, SHMEM_CMP_GE, value); }
static inline void put_after_put(long *data, long x, long *flag, long value, int pe) {
    shmem_long_p(data, x, pe);
    shmem_fence();
    shmem_long_p(flag, value, pe);
}
static inline void stream_word(long *to, long value, int pe) { shmem_long_p(to, value, pe); }
static inline void stream_block(void *to, const void *from, size_t bytes, int pe) { shmem_putmem_nbi(to, from, bytes, pe); }
static inline void complete(void) { shmem_quiet(); }
static inline long fetch_add(long *word, long value, int pe) { return shmem_long_atomic_fetch_add(word, value, pe); }
static inline void barrier(void) { shmem_barrier_all(); }
static inline void sync_all(void) { shmem_sync_all(); }
static void broadcast(void *to, const void *from, size_t bytes) {
    turn_of_arrays ^= 1;
    shmem_broadcast64(to, from, bytes / 8, 0, 0, 0, shmem_n_pes(), sync_array[turn_of_arrays]);
}
static void all_reduce(long *to, const long *from) {
    turn_of_arrays ^= 1;
    shmem_long_sum_to_all(to, (long *)from, 1, 0, 0, shmem_n_pes(), work[turn_of_arrays], sync_array[turn_of_arrays]);
}
static void all_to_all(void *to, const void *from, size_t each) {
    turn_of_arrays ^= 1;
    shmem_alltoall64(to, from, each / 8, 0, 0, shmem_n_pes(), sync_array[turn_of_arrays]);
}
static inline void lock_add_unlock(long *word, int pe) {
    shmem_set_lock(the_lock);
    shmem_long_p(word, shmem_long_g(word, pe) + 1, pe);
    shmem_clear_lock(the_lock);
}
/* PE 0's number, at all. */
static long from_first(long count) {
    *said = count;
    shmem_barrier_all();
    count = shmem_long_g(said, 0);
    shmem_barrier_all();
    return count;
}
