/* The operations of measure.c in MPI: one window for all of the memory, always open; puts are complete when flushed. */
#include <mpi.h>

static MPI_Win window, locked;
static char *base, *next;
static long *locked_word;

static void begin(int *argc, char ***argv) {
    MPI_Init(argc, argv);
    MPI_Aint bytes = (MPI_Aint)40 << 20;
    MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &locked_word, &locked);
    memset(base, 0, bytes);
    memset(locked_word, 0, 64);
    next = base;
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    MPI_Barrier(MPI_COMM_WORLD);
}
static void end(void) {
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Win_free(&locked);
    MPI_Finalize();
}
static int my_number(void) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}
static int how_many(void) {
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}
static void *symmetric(size_t bytes) {
    char *memory = next;
    next += (bytes + 127) / 128 * 128;
    return memory;
}
static inline void put_word(long *to, long value, int pe) {
    MPI_Put(&value, 1, MPI_LONG, pe, (char *)to - base, 1, MPI_LONG, window);
    MPI_Win_flush(pe, window);
}
static inline void wait_word(long *word, long value) {
    for (int looks = 0; *(volatile long *)word < value; looks++) {
        MPI_Win_sync(window);
        /* Lets a library without a thread of its own make progress. */
        int there;
        if (looks % 64 == 63) MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    }
}
static inline void put_after_put(long *data, long x, long *flag, long value, int pe) {
    put_word(data, x, pe);
    put_word(flag, value, pe);
}
static inline void stream_word(long *to, long value, int pe) {
    MPI_Put(&value, 1, MPI_LONG, pe, (char *)to - base, 1, MPI_LONG, window);
    MPI_Win_flush_local(pe, window);
}
static inline void stream_block(void *to, const void *from, size_t bytes, int pe) {
    MPI_Put(from, (int)bytes, MPI_BYTE, pe, (char *)to - base, (int)bytes, MPI_BYTE, window);
}
static inline void complete(void) { MPI_Win_flush_all(window); }
static inline long fetch_add(long *word, long value, int pe) {
    long old;
    MPI_Fetch_and_op(&value, &old, MPI_LONG, pe, (char *)word - base, MPI_SUM, window);
    MPI_Win_flush(pe, window);
    return old;
}
static inline void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }
static inline void sync_all(void) { MPI_Barrier(MPI_COMM_WORLD); }
static void broadcast(void *to, const void *from, size_t bytes) {
    MPI_Bcast(my_number() == 0 ? (void *)from : to, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
}
static void all_reduce(long *to, const long *from) { MPI_Allreduce(from, to, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD); }
static void all_to_all(void *to, const void *from, size_t each) {
    MPI_Alltoall(from, (int)each, MPI_BYTE, to, (int)each, MPI_BYTE, MPI_COMM_WORLD);
}
static inline void lock_add_unlock(long *word, int pe) {
    (void)word;
    long value;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, pe, 0, locked);
    MPI_Get(&value, 1, MPI_LONG, pe, 0, 1, MPI_LONG, locked);
    MPI_Win_flush(pe, locked);
    value++;
    MPI_Put(&value, 1, MPI_LONG, pe, 0, 1, MPI_LONG, locked);
    MPI_Win_unlock(pe, locked);
}
static long from_first(long count) {
    MPI_Bcast(&count, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    return count;
}
