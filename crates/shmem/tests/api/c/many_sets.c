/* More active sets than a job has room for teams; then teams. Each set is used in two rounds: some stay teams in between. */
#include "test.h"

static long psync[SHMEM_SYNC_SIZE], work[SHMEM_REDUCE_MIN_WRKDATA_SIZE], source[2], dest[2][2];

static void use(int round, int start, int log_stride, int size) {
    int rank = (me - start) >> log_stride, root = (start + round) % size;
    if (me < start || start + (rank << log_stride) != me || rank >= size) return;
    long sum = 0;
    for (int i = 0; i < size; i++) sum += start + (i << log_stride) + round;
    source[0] = me + round, source[1] = 1;
    shmem_barrier(start, log_stride, size, psync);
    shmem_long_sum_to_all(dest[0], source, 2, start, log_stride, size, work, psync);
    CHECK(dest[0][0] == sum && dest[0][1] == size, "set %d %d %d: %ld of %ld", start, log_stride, size, dest[0][0], sum);
    /* Its root does not wait for the others. */
    shmem_broadcast64(dest[1], source, 1, root, start, log_stride, size, psync);
    long expected = start + (root << log_stride) + round;
    if (rank != root) CHECK(dest[1][0] == expected, "set %d %d %d: %ld for %ld", start, log_stride, size, dest[1][0], expected);
    shmem_sync(start, log_stride, size, psync);
}

int main(void) {
    begin();
    int many = 0;
    for (int round = 0; round < 2; round++)
        for (int log_stride = 0; log_stride < 2; log_stride++)
            for (int start = 0; start < npes; start++)
                for (int size = 1; start + ((size - 1) << log_stride) < npes; size++) {
                    use(round, start, log_stride, size);
                    many += start <= me && me <= start + ((size - 1) << log_stride);
                }
    CHECK(many > 2 * 256 || me < npes / 2 - 1 || me > npes / 2, "%d sets", many);
    /* A single PE, by any stride. */
    for (int i = 0; i < 31; i++) shmem_sync(me, i, 1, psync);
    shmem_team_t teams[64];
    for (int i = 0; i < 64; i++) CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, npes, NULL, 0, &teams[i]) == 0, "team %d", i);
    for (int i = 0; i < 64; i++) shmem_team_sync(teams[i]), shmem_team_destroy(teams[i]);
    return finish();
}
