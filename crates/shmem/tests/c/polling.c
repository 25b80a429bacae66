/* Two PEs that share a CPU look in vain, by each kind of call: whether they give way to each other. */
#include <shmem.h>
#include <stdio.h>
#include <sys/resource.h>

#define LOOKS 500000
#define TURNS 200

static long word, words[4], done, written, blocks[2];
static uint64_t signal_word;
static int me, other;
static shmem_ctx_t ctx;

static long turns(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw + usage.ru_nivcsw;
}

static void by_g(long i) { (void)i, (void)shmem_long_g(&word, other); }
static void by_g_of_several(long i) { (void)shmem_long_g(&words[i % 4], (int)(i / 4 % 2)); }
static void by_g_of_a_context(long i) { (void)i, (void)shmem_ctx_long_g(ctx, &word, other); }
static void by_get(long i) {
    long seen;
    (void)i, shmem_long_get(&seen, &word, 1, other);
}
static void by_get_of_some(long i) {
    long seen[4];
    (void)i, shmem_long_get(seen, words, 4, other);
}
static void by_get_nbi(long i) {
    long seen;
    (void)i, shmem_long_get_nbi(&seen, &word, 1, other);
}
static void by_fetch(long i) { (void)i, (void)shmem_long_atomic_fetch(&word, other); }
static void by_compare_swap(long i) { (void)i, (void)shmem_long_atomic_compare_swap(&word, 1, 2, other); }
static void by_swap(long i) { (void)i, (void)shmem_long_atomic_swap(&word, 0, other); }
static void by_fetch_or(long i) { (void)i, (void)shmem_uint64_atomic_fetch_or(&signal_word, 0, other); }
static void by_quiet(long i) { (void)i, shmem_quiet(); }
static void by_fence(long i) { (void)i, shmem_fence(); }
static void by_test(long i) { (void)i, (void)shmem_long_test(&word, SHMEM_CMP_NE, 0); }
static void by_test_any(long i) { (void)i, (void)shmem_long_test_any(words, 4, NULL, SHMEM_CMP_NE, 0); }
static void by_signal_fetch(long i) { (void)i, (void)shmem_signal_fetch(&signal_word); }

/* Polls this PE's own memory without a call, as many implementations of queues do, between writes to the other PE. */
static void load_plainly(void) {
    for (int i = 0; i < 3000; i++) (void)*(volatile long *)&written;
}
static void by_loads_after_p(long i) { shmem_long_p(&written, i, other), load_plainly(); }
static void by_loads_after_p_in_a_context(long i) { shmem_ctx_long_p(ctx, &written, i, other), load_plainly(); }
static void by_loads_after_put(long i) { shmem_long_put(&written, &i, 1, other), load_plainly(); }
static void by_loads_after_put_of_some(long i) {
    long from[2] = {i, i};
    shmem_long_put(blocks, from, 2, other), load_plainly();
}
static void by_loads_after_put_nbi(long i) { shmem_long_put_nbi(&written, &i, 1, other), load_plainly(); }
static void by_loads_after_add(long i) { (void)i, shmem_long_atomic_add(&written, 1, other), load_plainly(); }
static void by_loads_after_set(long i) { shmem_long_atomic_set(&written, i, other), load_plainly(); }
static void by_loads_after_put_signal(long i) {
    shmem_long_put_signal(&written, &i, 1, &signal_word, 1, SHMEM_SIGNAL_SET, other), load_plainly();
}

/* Looks in vain until this PE has had enough turns, or has looked often enough; then for as long as the other one does not know. */
static int gives_way(const char *how, void (*look)(long), long most) {
    long i, before = turns();
    done = 0;
    shmem_barrier_all();
    for (i = 0; i < most && (i % 256 || turns() - before < TURNS); i++) look(i);
    shmem_long_p(&done, 1, other);
    int enough = i < most;
    if (!enough) printf("PE %d: %s: %ld turns in %ld looks\n", me, how, turns() - before, most);
    while (!*(volatile long *)&done) look(i++);
    shmem_barrier_all();
    return enough;
}

int main(void) {
    shmem_init();
    me = shmem_my_pe();
    other = 1 - me;
    shmem_ctx_create(0, &ctx);
    int all = 1;
#define TRY(how) all &= gives_way(#how, how, LOOKS)
    TRY(by_g);
    TRY(by_g_of_several);
    TRY(by_g_of_a_context);
    TRY(by_get);
    TRY(by_get_of_some);
    TRY(by_get_nbi);
    TRY(by_fetch);
    TRY(by_compare_swap);
    TRY(by_swap);
    TRY(by_fetch_or);
    TRY(by_quiet);
    TRY(by_fence);
    TRY(by_test);
    TRY(by_test_any);
    TRY(by_signal_fetch);
#undef TRY
    /* Each look is thousands of loads. */
#define TRY(how) all &= gives_way(#how, how, LOOKS / 10)
    TRY(by_loads_after_p);
    TRY(by_loads_after_p_in_a_context);
    TRY(by_loads_after_put);
    TRY(by_loads_after_put_of_some);
    TRY(by_loads_after_put_nbi);
    TRY(by_loads_after_add);
    TRY(by_loads_after_set);
    TRY(by_loads_after_put_signal);
    printf("PE %d: %s\n", me, all ? "gives way" : "keeps its CPU");
    shmem_finalize();
    return 0;
}
