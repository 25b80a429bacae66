/* Words that go without a call: functions of all kinds, on memory of both kinds. Valid C11 and C++. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct all {
    signed char schar_, schar_2;
    short short_, short_2;
    int int_, int_2;
    long long_, long_2;
    float float_, float_2;
    double double_, double_2;
    unsigned char bytes[4];
};

static struct all here;
static int me, wrong;

#define CHECK(condition) ((condition) ? (void)0 : (void)(wrong++, fprintf(stderr, "PE %d, line %d: not %s\n", me, __LINE__, #condition)))

#ifdef MEMONET_INLINE
static int is_open(int pe) { return memonet_near_1.apart[pe] != 0; }
#else
static int is_open(int pe) { return -1 - 0 * pe; }
#endif

#define BY_TYPE(N, T) \
    shmem_##N##_p(&to->N##_, (T)(me - 5), next); \
    source.N##_2 = (T)(me + 50); \
    shmem_ctx_##N##_put(SHMEM_CTX_DEFAULT, &to->N##_2, &source.N##_2, 1, next); \
    shmem_barrier_all(); \
    CHECK(to->N##_ == (T)(before - 5) && to->N##_2 == (T)(before + 50)); \
    CHECK(shmem_##N##_g(&to->N##_, next) == (T)(me - 5)); \
    shmem_##N##_get(&source.N##_2, &to->N##_2, 1, before); \
    CHECK(source.N##_2 == (T)((before + n - 1) % n + 50)); \
    shmem_barrier_all();

static void send(struct all *to, int n) {
    int next = (me + 1) % n, before = (me + n - 1) % n;
    struct all source;
    BY_TYPE(schar, signed char)
    BY_TYPE(short, short)
    BY_TYPE(int, int)
    BY_TYPE(long, long)
    BY_TYPE(float, float)
    BY_TYPE(double, double)
    /* Bytes at an odd address, and to oneself. */
    unsigned char bytes[2] = {(unsigned char)me, 77};
    shmem_putmem_nbi(&to->bytes[1], bytes, 2, next);
    shmem_barrier_all();
    CHECK(to->bytes[0] == 0 && to->bytes[1] == before && to->bytes[2] == 77 && to->bytes[3] == 0);
    shmem_barrier_all();
    shmem_put8(&to->bytes[1], &to->bytes[2], 1, me);
    shmem_quiet();
    CHECK(to->bytes[1] == 77);
    shmem_barrier_all();
}

int main(void) {
    int open[4];
    open[0] = is_open(0);
    shmem_init();
    me = shmem_my_pe();
    int n = shmem_n_pes();
    struct all *allocated = (struct all *)shmem_calloc(1, sizeof *allocated);
    open[1] = is_open(n - 1);
    send(allocated, n);
    send(&here, n);
    pid_t child = fork();
    if (child == 0) _exit(is_open(n - 1));
    int status;
    waitpid(child, &status, 0);
    open[2] = WEXITSTATUS(status);
    CHECK(is_open(n - 1) == open[1]);
    shmem_free(allocated);
    shmem_finalize();
    open[3] = is_open(0);
    printf("PE %d: %d %d %d %d\n", me, open[0], open[1], open[2], open[3]);
    return wrong;
}
