/* Each case is one mistake, which the first argument names. The last PE makes it; the others wait in a barrier, and are to hear of
   it. Where all have to take part, all do. */
#include <limits.h>
#include "test.h"

static long variable, words[100], *block;
static const long constants[4] = {1, 2, 3, 4};
static uint64_t signal_word;

/* What makes mistakes before or after the library is there. */
static int outside(const char *what) {
#define CASE(name) if (strcmp(what, name) == 0)
    CASE("my_pe before init") return shmem_my_pe();
    CASE("put before init") return shmem_long_p(&variable, 1, 0), 0;
    CASE("barrier before init") return shmem_barrier_all(), 0;
    CASE("malloc before init") return shmem_malloc(8) != NULL;
    CASE("finalize before init") return shmem_finalize(), 0;
    CASE("query_initialized to NULL") return shmem_query_initialized(NULL), 0;
    CASE("info_get_version to NULL") { int minor; return shmem_info_get_version(NULL, &minor), 0; }
    CASE("info_get_version, minor to NULL") { int major; return shmem_info_get_version(&major, NULL), 0; }
    CASE("info_get_name to NULL") return shmem_info_get_name(NULL), 0;
    CASE("thread level") return shmem_init_thread(17, NULL);
    if (strncmp(what, "after: ", 7) != 0) return -1;
    begin();
    shmem_finalize();
    CASE("after: my_pe") return shmem_my_pe();
    CASE("after: malloc") return shmem_malloc(8) != NULL;
    CASE("after: put") return shmem_long_p(&variable, 1, 0), 0;
    CASE("after: barrier") return shmem_barrier_all(), 0;
    CASE("after: finalize") return shmem_finalize(), 0;
    CASE("after: global_exit") shmem_global_exit(0);
    CASE("after: team") return shmem_team_my_pe(SHMEM_TEAM_WORLD);
    return -1;
}

static int right(int home, int holder) { return home == holder ? SHMEMX_ACCESS_READ_WRITE : SHMEMX_ACCESS_NONE; }

/* Mistakes that all PEs make, or in which all take part. */
static int together(const char *what) {
    int last = me == npes - 1;
    shmem_team_t team;
    CASE("sizes differ") return shmem_malloc(last ? 100 : 200) != NULL;
    CASE("alignments differ") return shmem_align(last ? 128 : 64, 100) != NULL;
    CASE("malloc and calloc") return (last ? shmem_calloc(100, 1) : shmem_malloc(100)) != NULL;
    CASE("malloc and free") return last ? shmem_free(block), 0 : shmem_malloc(100) != NULL;
    CASE("frees differ") {
        long *other = (long *)shmem_malloc(80);
        shmem_free(last ? block : other);
        return 0;
    }
    CASE("free twice") return shmem_free(block), shmem_free(block), 0;
    CASE("free within") return shmem_free(block + 1), 0;
    CASE("free of stack") return shmem_free(&block), 0;
    CASE("free of static") return shmem_free(&variable), 0;
    CASE("realloc of freed") return shmem_free(block), shmem_realloc(block, 100) != NULL;
    CASE("realloc within") return shmem_realloc(block + 2, 100) != NULL;
    CASE("free and barrier") return last ? shmem_free(block) : shmem_barrier_all(), 0;
    CASE("the same malloc and barrier") return last ? shmem_malloc(80) != NULL : (shmem_barrier_all(), 0);
    CASE("split to NULL") return shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, npes, NULL, 0, NULL);
    CASE("split_2d, x to NULL") return shmem_team_split_2d(SHMEM_TEAM_WORLD, 1, NULL, 0, NULL, NULL, 0, &team);
    CASE("split_2d, y to NULL") return shmem_team_split_2d(SHMEM_TEAM_WORLD, 1, NULL, 0, &team, NULL, 0, NULL);
    CASE("barrier_create to NULL") return shmemx_barrier_create(SHMEM_TEAM_WORLD, NULL);
    CASE("supersteps_create to NULL") return shmemx_supersteps_create(8, 0, NULL);
    CASE("multicast_create to NULL") return shmemx_multicast_create(0, NULL, 0, 0, NULL);
    CASE("window_create to NULL") return shmemx_window_create(8, right, NULL);
    CASE("mutex_create to NULL") return shmemx_mutex_create(NULL, 8, NULL);
    CASE("region_create to NULL") return shmemx_region_create(8, 0, SHMEMX_REGION_BLOCK, NULL);
    shmemx_mutex_t mutex;
    shmemx_region_t region;
    CASE("mutexes differ") return shmemx_mutex_create(NULL, last ? 100 : 200, &mutex);
    CASE("mutex too large") return shmemx_mutex_create(NULL, SIZE_MAX / 4, &mutex);
    CASE("mutex twice") return shmemx_mutex_create(NULL, 8, &mutex) || (shmemx_mutex_acquire(mutex) && shmemx_mutex_acquire(mutex));
    CASE("mutex without") return shmemx_mutex_create(NULL, 8, &mutex) || (shmemx_mutex_release(mutex), 0);
    CASE("mutex destroyed") return shmemx_mutex_create(NULL, 8, &mutex) || (shmemx_mutex_destroy(mutex), !shmemx_mutex_acquire(mutex));
    if (strncmp(what, "variables: ", 11) == 0) {
        size_t sizes[] = { 16, 32 }, others[] = { 32, 16 };
        CASE("variables: to NULL") return shmemx_mutex_create_variables(NULL, sizes, 2, NULL);
        CASE("variables: none") return shmemx_mutex_create_variables(NULL, sizes, 0, &mutex);
        CASE("variables: sizes differ") return shmemx_mutex_create_variables(NULL, last ? others : sizes, 2, &mutex);
        shmemx_mutex_create_variables(NULL, sizes, 2, &mutex);
        CASE("variables: a third") return shmemx_mutex_variable(mutex, 2) != NULL;
        CASE("variables: before the first") return shmemx_mutex_variable(mutex, -1) != NULL;
        CASE("variables: less than no time") return shmemx_mutex_timed_acquire(mutex, -0.5) != NULL;
        CASE("variables: stats to NULL") return shmemx_mutex_stats(mutex, NULL), 0;
        shmemx_mutex_destroy(mutex);
        CASE("variables: destroyed") return shmemx_mutex_variable(mutex, 0) != NULL;
    }
    if (strncmp(what, "rwlock: ", 8) == 0) {
        shmemx_rwlock_t rwlock;
        CASE("rwlock: to NULL") return shmemx_rwlock_create(NULL, 8, NULL);
        CASE("rwlock: too large") return shmemx_rwlock_create(NULL, SIZE_MAX / 4, &rwlock);
        shmemx_rwlock_create(NULL, 8, &rwlock);
        CASE("rwlock: without") return shmemx_rwlock_release(rwlock), 0;
        CASE("rwlock: of a mutex") return shmemx_rwlock_acquire_read((shmemx_rwlock_t)0x12345) != NULL;
        CASE("rwlock: write after read") return shmemx_rwlock_acquire_read(rwlock) && shmemx_rwlock_acquire_write(rwlock);
        CASE("rwlock: no time") return shmemx_rwlock_timed_acquire_read(rwlock, 0.0 / 0.0) != NULL;
        shmemx_rwlock_destroy(rwlock);
        CASE("rwlock: destroyed") return shmemx_rwlock_acquire_write(rwlock) != NULL;
    }
    if (strncmp(what, "messages: ", 10) == 0) {
        shmemx_messages_t messages;
        size_t length;
        CASE("messages: to NULL") return shmemx_messages_create(8, 1, NULL);
        CASE("messages: no depth") return shmemx_messages_create(8, 0, &messages);
        shmemx_messages_create(8, 1, &messages);
        CASE("messages: too long") return shmemx_messages_send(messages, words, 9, 0), 0;
        CASE("messages: to nobody") return shmemx_messages_send(messages, words, 8, npes), 0;
        CASE("messages: from nobody") return (int)shmemx_messages_recv_from(messages, words, 8, -1);
        CASE("messages: from NULL") return shmemx_messages_try_send(messages, NULL, 8, 0);
        CASE("messages: into NULL") return (int)shmemx_messages_recv(messages, NULL, 8, NULL);
        CASE("messages: length to NULL") return shmemx_messages_try_recv(messages, words, 8, NULL, NULL);
        CASE("messages: no room") return shmemx_messages_send(messages, words, 8, me), (int)shmemx_messages_recv(messages, words, 7, NULL);
        CASE("messages: less than no time") return shmemx_messages_timed_recv(messages, words, 8, &length, NULL, -1);
        shmemx_messages_destroy(messages);
        CASE("messages: destroyed") return shmemx_messages_send(messages, words, 8, 0), 0;
    }
    if (strncmp(what, "multicast: ", 11) == 0) {
        shmemx_multicast_t channel;
        int reader = 1, nobody = -7;
        size_t bytes;
        CASE("multicast: from nobody") return shmemx_multicast_create(-1, &reader, 1, 0, &channel);
        CASE("multicast: to nobody") return shmemx_multicast_create(0, &nobody, 1, 0, &channel);
        CASE("multicast: too many") return shmemx_multicast_create(0, &reader, SIZE_MAX, 0, &channel);
        shmemx_multicast_create(0, &reader, 1, 0, &channel);
        CASE("multicast: too long") return shmemx_multicast_publish(channel, words, SIZE_MAX), 0;
        CASE("multicast: into nothing") return shmemx_multicast_receive(channel, words, 8, NULL);
        CASE("multicast: into nowhere") {
            if (me == 0) shmemx_multicast_publish(channel, words, 8);
            return me == 1 && shmemx_multicast_receive(channel, (void *)8, 8, &bytes);
        }
        shmemx_multicast_destroy(channel);
        CASE("multicast: destroyed") return shmemx_multicast_publish(channel, words, 8), 0;
    }
    CASE("placements differ") return shmemx_region_create(100, 0, last ? SHMEMX_REGION_CYCLIC : SHMEMX_REGION_BLOCK, &region);
    CASE("region's options") return shmemx_region_create(100, 0, 7, &region);
    CASE("region's page") return shmemx_region_create(100, 100, 0, &region);
    if (strncmp(what, "region_", 7) == 0 && !strstr(what, "create")) {
        shmemx_region_create(100, 0, SHMEMX_REGION_BLOCK, &region);
        CASE("region_read past the end") return shmemx_region_read(region, words, 96, 8), 0;
        CASE("region_write from -1") return shmemx_region_write(region, SIZE_MAX, words, 8), 0;
        CASE("region_read to NULL") return shmemx_region_read(region, NULL, 0, 8), 0;
        CASE("region_write from NULL") return shmemx_region_write(region, 0, NULL, 8), 0;
        CASE("region_write from nowhere") return shmemx_region_write(region, 0, (void *)8, 8), 0;
        CASE("region_start past the end") return shmemx_region_start_read(region, 96, 8) != NULL;
        CASE("region_end of another") return shmemx_region_end(region, words), 0;
        const void *start = shmemx_region_start_write(region, 8, 8);
        CASE("region_end twice") return shmemx_region_end(region, start), shmemx_region_end(region, start), 0;
        CASE("region_stats to NULL") return shmemx_region_stats(region, NULL), 0;
        shmemx_region_destroy(region);
        CASE("region_release of destroyed") return shmemx_region_release(region);
    }
    CASE("active set") return shmem_barrier(0, 0, npes + 1, &variable), 0;
    CASE("active set stride") return shmem_barrier(0, -1, npes, &variable), 0;
    CASE("active set of garbage") return shmem_barrier(0, 30, INT_MAX, &variable), 0;
    CASE("active set of none") return shmem_sync(0, 0, 0, &variable), 0;
    CASE("active set of others") return shmem_barrier(me == 0 ? 1 : 0, 0, 1, &variable), 0;
    CASE("collective of no team") return shmem_int_sum_reduce(SHMEM_TEAM_INVALID, NULL, NULL, 0) == 0;
    CASE("sync of no team") return shmem_team_sync(SHMEM_TEAM_INVALID) == 0;
    CASE("to_all count") return shmem_int_sum_to_all(NULL, NULL, -1, 0, 0, npes, NULL, &variable), 0;
    CASE("root") return shmem_broadcastmem(SHMEM_TEAM_WORLD, words, words + 50, 8, npes);
    CASE("root of set") return shmem_broadcast64(words, words + 50, 1, -1, 0, 0, npes, &variable), 0;
    CASE("alltoalls stride") return shmem_long_alltoalls(SHMEM_TEAM_WORLD, words, words + 50, 0, 1, 1);
    CASE("alltoalls count") return shmem_long_alltoall(SHMEM_TEAM_WORLD, words, words + 50, SIZE_MAX / 2);
    CASE("reduce on stack") { long on_stack[2] = {0}; return shmem_long_sum_reduce(SHMEM_TEAM_WORLD, on_stack, &words[0], 1); }
    CASE("reduce from malloc") return shmem_long_sum_reduce(SHMEM_TEAM_WORLD, words, (long *)malloc(80), 10);
    CASE("collect on stack") { long on_stack[9] = {0}; return shmem_long_collect(SHMEM_TEAM_WORLD, on_stack, words, 1); }
    CASE("fcollect on stack") { long on_stack[9] = {0}; return shmem_long_fcollect(SHMEM_TEAM_WORLD, on_stack, words, 1); }
    CASE("sync of destroyed team") {
        shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, npes, NULL, 0, &team);
        shmem_team_destroy(team);
        return shmem_team_sync(team);
    }
    CASE("ask a destroyed team") {
        shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, npes, NULL, 0, &team);
        shmem_team_destroy(team);
        return shmem_team_my_pe(team);
    }
    CASE("destroy a team twice") {
        shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, npes, NULL, 0, &team);
        shmem_team_destroy(team);
        return shmem_team_destroy(team), 0;
    }
    CASE("context of a destroyed team") {
        shmem_ctx_t ctx;
        shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, npes, NULL, 0, &team);
        shmem_team_create_ctx(team, 0, &ctx);
        shmem_team_destroy(team);
        return shmem_ctx_long_p(ctx, &variable, 1, 0), 0;
    }
    CASE("destroy the world") return shmem_team_destroy(SHMEM_TEAM_WORLD), 0;
    CASE("no team at all") return shmem_team_n_pes((shmem_team_t)0x1234567);
    CASE("barrier destroyed") {
        shmemx_barrier_t barrier;
        shmemx_barrier_create(SHMEM_TEAM_WORLD, &barrier);
        shmemx_barrier_destroy(barrier);
        return shmemx_barrier_wait(barrier), 0;
    }
    CASE("supersteps destroyed") {
        shmemx_supersteps_t steps;
        shmemx_supersteps_create(8, 0, &steps);
        shmemx_supersteps_destroy(steps);
        return shmemx_supersteps_step(steps), 0;
    }
    CASE("superstep_put past the end") {
        shmemx_supersteps_t steps;
        shmemx_supersteps_create(100, 0, &steps);
        return shmemx_supersteps_put(steps, 96, words, 8, me), 0;
    }
    CASE("superstep_put to nobody") {
        shmemx_supersteps_t steps;
        shmemx_supersteps_create(100, 0, &steps);
        return shmemx_supersteps_put(steps, 0, words, 8, npes), 0;
    }
    CASE("supersteps differ") {
        shmemx_supersteps_t steps;
        return shmemx_supersteps_create(last ? 100 : 200, 0, &steps);
    }
    /* With all checks on. */
    CASE("broadcast, nelems differ") return shmem_long_broadcast(SHMEM_TEAM_WORLD, words, words + 50, last ? 3 : 2, 0);
    CASE("broadcast, roots differ") return shmem_broadcastmem(SHMEM_TEAM_WORLD, words, words + 50, 8, last);
    CASE("broadcast in a set, nelems differ") return shmem_broadcast64(words, words + 50, last ? 3 : 2, 0, 0, 0, npes, &variable), 0;
    CASE("reduce, nreduce differs") return shmem_long_sum_reduce(SHMEM_TEAM_WORLD, words, words + 50, last ? 20 : 30);
    CASE("to_all, nreduce differs") return shmem_int_max_to_all((int *)words, (int *)(words + 50), 4 + last, 0, 0, npes, NULL, &variable), 0;
    CASE("scan, nelems differ") return shmem_int_sum_inscan(SHMEM_TEAM_WORLD, (int *)words, (int *)(words + 50), last ? 1 : 2);
    CASE("fcollect, nelems differ") return shmem_long_fcollect(SHMEM_TEAM_WORLD, words, words + 50, last ? 1 : 2);
    CASE("alltoall, nelems differ") return shmem_long_alltoall(SHMEM_TEAM_WORLD, words, words + 50, last ? 1 : 2);
    CASE("alltoalls, dst differs") return shmem_long_alltoalls(SHMEM_TEAM_WORLD, words, words + 50, last ? 1 : 2, 1, 2);
    CASE("different collectives") {
        return last ? shmem_long_max_reduce(SHMEM_TEAM_WORLD, words, words + 50, 2) : shmem_long_sum_reduce(SHMEM_TEAM_WORLD, words, words + 50, 2);
    }
    CASE("collect and fcollect") {
        return last ? shmem_long_fcollect(SHMEM_TEAM_WORLD, words, words + 50, 2) : shmem_long_collect(SHMEM_TEAM_WORLD, words, words + 50, 2);
    }
    CASE("reduce and barrier") return last ? shmem_barrier_all(), 0 : shmem_long_sum_reduce(SHMEM_TEAM_WORLD, words, words + 50, 2);
    CASE("overlap of reduce") return shmem_long_sum_reduce(SHMEM_TEAM_WORLD, words, words + 1, 2);
    CASE("overlap of fcollect") return shmem_long_fcollect(SHMEM_TEAM_WORLD, words, words, 1);
    CASE("overlap of alltoall") return shmem_long_alltoall(SHMEM_TEAM_WORLD, words, words + 1, 2);
    CASE("overlap of alltoalls") return shmem_long_alltoalls(SHMEM_TEAM_WORLD, words, words + 4, 2, 3, 1);
    CASE("overlap of broadcast in a set") return shmem_broadcast64(words, words + 1, 2, 0, 0, 0, npes, &variable), 0;
    CASE("overlap of collect") return shmem_long_collect(SHMEM_TEAM_WORLD, words + 1, words, 2);
    CASE("overlap of collect with what comes last") return shmem_long_collect(SHMEM_TEAM_WORLD, words, words + 2 * npes - 1, 2);
    CASE("overlap of collect in a set") return shmem_collect64(words, words + 1, 2, 0, 0, npes, &variable), 0;
    CASE("collect past the block") return shmem_long_collect(SHMEM_TEAM_WORLD, block, words, 100);
    return -1;
}

/* Mistakes of one PE. */
static int alone(const char *what) {
    long on_stack = 0, *private_block = (long *)malloc(80);
    shmem_ctx_t ctx, odd;
    shmem_team_t team;
    int other = 0;
    shmem_ctx_create(0, &ctx);
    CASE("p to stack") return shmem_long_p(&on_stack, 1, other), 0;
    CASE("put to malloc") return shmem_long_put(private_block, words, 10, other), 0;
    CASE("put_nbi to stack") return shmem_long_put_nbi(&on_stack, words, 1, other), 0;
    CASE("get from stack") return shmem_long_get(words, &on_stack, 1, other), 0;
    CASE("get from constants") return shmem_long_get(words, constants, 4, other), 0;
    CASE("g from malloc") return (int)shmem_long_g(private_block, other);
    CASE("iput to stack") return shmem_long_iput(&on_stack, words, 1, 1, 1, other), 0;
    CASE("ibget from malloc") return shmem_long_ibget(words, private_block, 2, 2, 2, 2, other), 0;
    CASE("atomic on stack") return (int)shmem_long_atomic_fetch_inc(&on_stack, other);
    CASE("atomic set on malloc") return shmem_long_atomic_set(private_block, 1, other), 0;
    CASE("signal on stack") return shmem_signal_add((uint64_t *)&on_stack, 1, other), 0;
    CASE("put_signal, data on stack") return shmem_long_put_signal(&on_stack, words, 1, &signal_word, 1, SHMEM_SIGNAL_SET, other), 0;
    CASE("put_signal, signal on stack") return shmem_long_put_signal(words, words, 1, (uint64_t *)&on_stack, 1, SHMEM_SIGNAL_SET, other), 0;
    CASE("lock on stack") return shmem_set_lock(&on_stack), 0;
    CASE("NULL") return shmem_long_p(NULL, 1, other), 0;
    CASE("code") return shmem_long_p((long *)(uintptr_t)alone, 1, other), 0;
    CASE("ctx put to stack") return shmem_ctx_long_put(ctx, &on_stack, words, 1, other), 0;
    CASE("pe -1") return shmem_long_p(&variable, 1, -1), 0;
    CASE("pe n") return shmem_long_put(words, words, 10, npes), 0;
    CASE("get pe") return shmem_long_get(words, words, 10, 1 << 20), 0;
    CASE("atomic pe") return (int)shmem_long_atomic_fetch(words, npes + 1);
    CASE("iget pe") return shmem_long_iget(words, words, 1, 1, 1, -5), 0;
    CASE("signal pe") return shmem_signal_set(&signal_word, 1, npes), 0;
    CASE("put_signal pe") return shmem_long_put_signal(words, words, 1, &signal_word, 1, SHMEM_SIGNAL_SET, -1), 0;
    CASE("ptr pe") return shmem_ptr(words, npes) != NULL;
    CASE("pe_quiet pe") { int list[] = {0, npes}; return shmem_pe_quiet(list, 2), 0; }
    CASE("ctx pe") return shmem_ctx_long_p(ctx, &variable, 1, npes), 0;
    CASE("team_ptr pe") return shmem_team_ptr(SHMEM_TEAM_WORLD, words, npes) != NULL;
    CASE("pe_quiet in ctx pe") { int list[] = {-3}; return shmem_ctx_pe_quiet(ctx, list, 1), 0; }
    CASE("count overflows") return shmem_long_put(words, words, SIZE_MAX / 4, other), 0;
    CASE("count too large") return shmem_putmem(words, words, (size_t)1 << 50, other), 0;
    CASE("get count overflows") return shmem_longdouble_get((long double *)words, (long double *)words, SIZE_MAX / 2, other), 0;
    CASE("strided count overflows") return shmem_long_iput(words, words, 1000, 1, SIZE_MAX / 100, other), 0;
    CASE("past the statics") return shmem_putmem(words, words, (size_t)1 << 30, other), 0;
    CASE("iput stride 0") return shmem_long_iput(words, words + 50, 0, 1, 3, other), 0;
    CASE("iput source stride 0") return shmem_long_iput(words, words + 50, 1, 0, 3, other), 0;
    CASE("iget stride -1") return shmem_long_iget(words, words + 50, -1, 1, 3, other), 0;
    CASE("ibput stride too small") return shmem_long_ibput(words, words + 50, 2, 3, 3, 2, other), 0;
    CASE("ibget stride too small") return shmem_ibget64(words, words + 50, 3, 2, 3, 2, other), 0;
    CASE("cmp") return shmem_long_wait_until(&variable, 77, 0), 0;
    CASE("cmp of test") return shmem_long_test(&variable, -1, 0);
    CASE("cmp of any") return (int)shmem_long_wait_until_any(words, 3, NULL, 6, 0);
    CASE("cmp of signal") return (int)shmem_signal_wait_until(&signal_word, 100, 0);
    CASE("sig_op") return shmem_long_put_signal(words, words + 50, 1, &signal_word, 1, 5, other), 0;
    CASE("sig_op nbi") return shmem_putmem_signal_nbi(words, words + 50, 1, &signal_word, 1, -1, other), 0;
    CASE("misaligned atomic") return shmem_long_atomic_inc((long *)((char *)words + 4), other), 0;
    CASE("misaligned fetch") return (int)shmem_int_atomic_fetch((int *)((char *)words + 1), other);
    CASE("misaligned compare_swap") return (int)shmem_long_atomic_compare_swap((long *)((char *)words + 1), 1, 2, other);
    CASE("misaligned signal") return shmem_signal_add((uint64_t *)((char *)words + 1), 1, other), 0;
    CASE("misaligned put_signal") return shmem_putmem_signal(words + 9, words, 1, (uint64_t *)((char *)words + 4), 1, SHMEM_SIGNAL_ADD, other), 0;
    CASE("misaligned lock") return shmem_set_lock((long *)((char *)words + 4)), 0;
    CASE("clear a free lock") return shmem_clear_lock(&variable), 0;
    CASE("destroyed ctx") return shmem_ctx_destroy(ctx), shmem_ctx_long_p(ctx, &variable, 1, other), 0;
    CASE("quiet on destroyed ctx") return shmem_ctx_destroy(ctx), shmem_ctx_quiet(ctx), 0;
    CASE("fence on destroyed ctx") return shmem_ctx_destroy(ctx), shmem_ctx_fence(ctx), 0;
    CASE("get_team of destroyed ctx") return shmem_ctx_destroy(ctx), shmem_ctx_get_team(ctx, &team);
    CASE("session on destroyed ctx") return shmem_ctx_destroy(ctx), shmem_ctx_session_stop(ctx), 0;
    CASE("destroyed twice") return shmem_ctx_destroy(ctx), shmem_ctx_destroy(ctx), 0;
    CASE("another in its place") return shmem_ctx_destroy(ctx), shmem_ctx_create(0, &odd), shmem_ctx_long_p(ctx, &variable, 1, other), 0;
    CASE("destroy the default ctx") return shmem_ctx_destroy(SHMEM_CTX_DEFAULT), 0;
    CASE("put on no ctx") return shmem_ctx_long_p(SHMEM_CTX_INVALID, &variable, 1, other), 0;
    CASE("session without config") return shmem_ctx_session_start(ctx, 0, NULL, 1), 0;
    CASE("split without config") return shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, 1, NULL, 1, &team);
    CASE("ctx_create to NULL") return shmem_ctx_create(0, NULL);
    CASE("team_create_ctx to NULL") return shmem_team_create_ctx(SHMEM_TEAM_WORLD, 0, NULL);
    CASE("ctx_get_team to NULL") return shmem_ctx_get_team(ctx, NULL);
    CASE("query_thread to NULL") return shmem_query_thread(NULL), 0;
    CASE("test_some to NULL") return (int)shmem_long_test_some(words, 3, NULL, NULL, SHMEM_CMP_EQ, 0);
    CASE("wait_until_some to NULL") return (int)shmem_long_wait_until_some(words, 3, NULL, NULL, SHMEM_CMP_EQ, 0);
    CASE("test_some_vector to NULL") return (int)shmem_long_test_some_vector(words, 3, NULL, NULL, SHMEM_CMP_EQ, words);
    CASE("wait_until_some_vector to NULL") return (int)shmem_long_wait_until_some_vector(words, 3, NULL, NULL, SHMEM_CMP_EQ, words);
    CASE("fetch_nbi to NULL") return shmem_long_atomic_fetch_nbi(NULL, words, other), 0;
    CASE("swap_nbi to NULL") return shmem_long_atomic_swap_nbi(NULL, words, 1, other), 0;
    CASE("compare_swap_nbi to NULL") return shmem_long_atomic_compare_swap_nbi(NULL, words, 0, 1, other), 0;
    CASE("fetch_inc_nbi to NULL") return shmem_long_atomic_fetch_inc_nbi(NULL, words, other), 0;
    CASE("fetch_add_nbi to NULL") return shmem_long_atomic_fetch_add_nbi(NULL, words, 1, other), 0;
    CASE("transfer freed") {
        shmemx_transfer_t transfer = shmemx_transfer_prepare(words, words + 50, 8, other);
        shmemx_transfer_free(transfer);
        return shmemx_transfer_start(transfer), 0;
    }
    /* With all checks on. */
    CASE("put from NULL") return shmem_long_put(words, NULL, 3, other), 0;
    CASE("put of a word from NULL") return shmem_long_put(words, NULL, 1, other), 0;
    CASE("put_nbi from nowhere") return shmem_long_put_nbi(words, (long *)8, 3, other), 0;
    CASE("put_signal from NULL") return shmem_long_put_signal(words, NULL, 3, &signal_word, 1, SHMEM_SIGNAL_SET, other), 0;
    CASE("get to NULL") return shmem_long_get(NULL, words, 3, other), 0;
    CASE("get beyond the end of memory") return shmem_getmem((char *)UINTPTR_MAX - 4, words, 10, other), 0;
    CASE("iput from NULL") return shmem_long_iput(words, NULL, 1, 1, 3, other), 0;
    CASE("iget to NULL") return shmem_long_iget(NULL, words, 1, 1, 3, other), 0;
    CASE("ctx_create to nowhere") return shmem_ctx_create(0, (shmem_ctx_t *)8);
    CASE("test_some to nowhere") return (int)shmem_long_test_some(words, 3, (size_t *)8, NULL, SHMEM_CMP_EQ, 0);
    CASE("pe_quiet of NULL") return shmem_pe_quiet(NULL, 2), 0;
    CASE("lock twice") return shmem_set_lock(&variable), shmem_set_lock(&variable), 0;
    CASE("lock and test, then lock") return shmem_test_lock(&variable), shmem_set_lock(&variable), 0;
    CASE("past the block") return shmem_long_put(block + 9, words, 2, 0), 0;
    CASE("past the block, get") return shmem_getmem(words, (char *)block + 1, 80, 0), 0;
    CASE("atomic past the block") return shmem_long_atomic_inc(block + 10, 0), 0;
    CASE("iput past the block") return shmem_long_iput(block, words, 4, 1, 4, 0), 0;
    CASE("between blocks") return shmem_long_p(block + 100000, 1, 0), 0;
    CASE("wait on stack") return shmem_long_wait_until(&on_stack, SHMEM_CMP_NE, 0), 0;
    CASE("wait past the block") return shmem_long_wait_until_all(block, 11, NULL, SHMEM_CMP_NE, 0), 0;
    CASE("signal_wait on malloc") return (int)shmem_signal_wait_until((uint64_t *)private_block, SHMEM_CMP_NE, 0);
    return -1;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (argc > 2 && strcmp(argv[2], "outside") == 0) outside(what);
    else {
        begin();
        block = (long *)shmem_malloc(80);
        if (strcmp(argv[2], "together") == 0) together(what);
        else if (me == npes - 1) alone(what);
        shmem_barrier_all();
        finish();
    }
    /* Nobody may come here. */
    fprintf(stderr, "nothing has happened\n");
    return 0;
}
