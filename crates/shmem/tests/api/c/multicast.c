/* Multicast channels: each reader gets each block, whole, once and in order, however it travels. */
#include "test.h"

enum { BLOCKS = 60, MOST = 40000 };
static const size_t sizes[] = { 0, 1, 7, 8, 1000, 2049, MOST };

static size_t size_of(int block) {
    return sizes[block % (int)(sizeof sizes / sizeof sizes[0])];
}

static void write_all(shmemx_multicast_t channel, int writer) {
    static char block[MOST];
    for (int i = 0; i < BLOCKS; i++) {
        fill(block, size_of(i), writer * 1000 + i);
        shmemx_multicast_publish(channel, size_of(i) ? block : NULL, size_of(i));
        memset(block, GUARD, sizeof block);
    }
}

/* Every other block by trying. */
static void read_all(shmemx_multicast_t channel, int writer) {
    static char block[MOST + 8];
    for (int i = 0; i <= BLOCKS; i++) {
        size_t bytes = 99;
        int came;
        memset(block, GUARD, sizeof block);
        if (i % 2) while ((came = shmemx_multicast_try_receive(channel, block, MOST, &bytes)) == 0) sched_yield();
        else came = shmemx_multicast_receive(channel, block, MOST, &bytes);
        if (i == BLOCKS) {
            CHECK(came == -1 && bytes == 99, "the end of the channel of %d", writer);
            CHECK(shmemx_multicast_try_receive(channel, block, MOST, &bytes) == -1, "the end stays the end");
            break;
        }
        CHECK(came == 1 && bytes == size_of(i), "block %d of %d: %d, %zu bytes", i, writer, came, bytes);
        CHECK(is_filled(block, bytes, writer * 1000 + i), "block %d of %d", i, writer);
        CHECK(is_guard(block + bytes, sizeof block - bytes), "behind block %d of %d", i, writer);
    }
}

/* From one PE to all others, or to those with an even number. */
static const char *channel(int writer, int all, size_t capacity) {
    int *readers = (int *)malloc(npes * sizeof *readers), count = 0, reads = 0;
    for (int pe = npes - 1; pe >= 0; pe--)
        if (pe != writer && (all || pe % 2 == 0)) {
            reads |= pe == me;
            readers[count++] = pe;
        }
    shmemx_multicast_t made;
    CHECK(shmemx_multicast_create(writer, readers, count, capacity, &made) == 0, "a channel of %d", writer);
    free(readers);
    const char *delivery = shmemx_multicast_delivery(made);
    if (me == writer) write_all(made, writer);
    /* The readers find the end only when the writer has gone. */
    if (me == writer) shmemx_multicast_destroy(made);
    if (reads) read_all(made, writer);
    if (me != writer) shmemx_multicast_destroy(made);
    shmem_barrier_all();
    return delivery;
}

int main(int argc, char **argv) {
    begin();
    const char *delivery = "";
    for (int writer = 0; writer < npes && writer < 3; writer++) {
        delivery = channel(writer, 1, 0);
        channel(writer, 0, 1 << 14);
    }
    if (me == 0 && argc > 1) printf("%s\n", delivery);
    (void)argv;
    return finish();
}
