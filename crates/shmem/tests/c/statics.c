/* Static data of every kind as symmetric objects. The argument says what else to do with it. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                    \
    do {                                                                                                    \
        if (!(condition)) {                                                                                 \
            fprintf(stderr, "PE %d: line %d: not so: %s\n", me, __LINE__, #condition);                      \
            exit(9);                                                                                        \
        }                                                                                                   \
    } while (0)

extern char **environ;

int initialised = 7;
static long table[3000] = {1, 2, 3};
static double zeros[100];
static char huge[1L << 30];
const int *const fixed = &initialised;
static int me, n;

static int *inside(void) {
    static int value = 40;
    return &value;
}

/* Resident memory of this process, in MiB. */
static long resident(void) {
    char line[200];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    fclose(status);
    return kib / 1024;
}

static void exchange(void) {
    int to = (me + 1) % n, from = (me + n - 1) % n;
    CHECK(initialised == 7 && *fixed == 7 && table[2] == 3 && table[2999] == 0 && *inside() == 40);
    CHECK(huge[5] == 0 && huge[sizeof huge - 1] == 0);
    shmem_barrier_all();
    shmem_int_p(&initialised, 100 + me, to);
    shmem_long_p(&table[2999], 200 + me, to);
    shmem_double_p(&zeros[99], me / 2.0, to);
    shmem_int_p(inside(), 300 + me, to);
    shmem_char_put(&huge[sizeof huge - 10], "far end", 8, to);
    shmem_barrier_all();
    CHECK(initialised == 100 + from && *fixed == initialised && table[2999] == 200 + from && zeros[99] == from / 2.0);
    CHECK(*inside() == 300 + from && strcmp(&huge[sizeof huge - 10], "far end") == 0);
    CHECK(shmem_int_g(&initialised, to) == 100 + me && table[1] == 2);
    shmem_barrier_all();
    shmem_long_atomic_add(&table[0], me + 1, 0);
    shmem_barrier_all();
    CHECK(me != 0 || table[0] == 1 + n * (n + 1) / 2);
    CHECK(resident() < 100);
}

static void addresses(void) {
    int on_stack = 0, *allocated = malloc(sizeof *allocated);
    for (int pe = 0; pe < n; pe++) {
        CHECK(shmem_addr_accessible(&initialised, pe) && shmem_addr_accessible(&huge[1 << 20], pe));
        CHECK(!shmem_addr_accessible(&on_stack, pe) && !shmem_addr_accessible(allocated, pe));
        CHECK(!shmem_addr_accessible((void *)&exchange, pe));
        CHECK(!shmem_ptr(&on_stack, pe) && !shmem_ptr(allocated, pe));
    }
    CHECK(!shmem_addr_accessible(&initialised, n) && !shmem_addr_accessible(&initialised, -1));
    CHECK(shmem_ptr(&initialised, me) == &initialised);
    int *there = shmem_ptr(&initialised, (me + 1) % n);
    /* None where no memory is shared. */
    CHECK(!there || *there == shmem_int_g(&initialised, (me + 1) % n));
    free(allocated);
}

/* A child's variables are its own. */
static void children(void) {
    char text[20] = "";
    int status;
    table[7] = 70;
    shmem_barrier_all();
    for (int way = 0; way < 2; way++) {
        pid_t child = fork();
        if (child == 0) {
            int right = table[7] == 70 && initialised == 100 + (me + n - 1) % n;
            memset(table, 1, sizeof table);
            huge[1 << 20] = 1;
            initialised = 5;
            if (!right || initialised != 5 || table[7] == 70)
                _exit(1);
            /* By every call, its own static data are its own, where PEs are near. */
            int near = shmem_ptr(&table[3], (me + 1) % n) != NULL;
            shmem_long_p(&table[3], 33, me);
            right = table[3] == 33 && shmem_long_g(&table[3], me) == 33 &&
                    shmem_long_atomic_fetch_inc(&table[3], me) == 33 && table[3] == 34;
            long got = 0;
            shmem_getmem(&got, &table[3], sizeof got, me);
            if (near && (!right || got != 34))
                _exit(3);
            /* What its own children find is what it has, as far as nobody changes it. */
            huge[2 << 20] = 9;
            pid_t grandchild = fork();
            if (grandchild == 0) {
                right = table[8] == 0x0101010101010101 && huge[1 << 20] == 1 && huge[2 << 20] == 9;
                memset(table, 2, sizeof table);
                huge[2 << 20] = 2;
                _exit(!right);
            }
            if (waitpid(grandchild, &status, 0) != grandchild || status != 0 || table[8] == 0x0202020202020202 || huge[2 << 20] != 9)
                _exit(2);
            way ? exit(0) : _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        CHECK(table[7] == 70 && table[3] != 34 && huge[1 << 20] == 0 && initialised == 100 + (me + n - 1) % n);
    }
    status = system("exit 3");
    CHECK(WEXITSTATUS(status) == 3);
    FILE *pipe = popen("echo text", "r");
    CHECK(fgets(text, sizeof text, pipe) && strcmp(text, "text\n") == 0 && pclose(pipe) == 0);
    /* Still symmetric. */
    shmem_barrier_all();
    shmem_long_p(&table[7], 71 + me, (me + 1) % n);
    shmem_barrier_all();
    CHECK(table[7] == 71 + (me + n - 1) % n);
}

/* What the program shares with libc: the loader may have moved it into the program. */
static void of_libc(void) {
    setenv("MEMONET_TEST_SET", "yes", 1);
    int found = 0;
    for (char **entry = environ; *entry; entry++)
        found += strcmp(*entry, "MEMONET_TEST_SET=yes") == 0;
    CHECK(found == 1 && stdout && fprintf(stdout, "PE %d of %d\n", me, n) > 0);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    int on_stack = 0;
    shmem_init();
    me = shmem_my_pe();
    n = shmem_n_pes();
    if (strcmp(what, "stack") == 0)
        shmem_int_p(&on_stack, 1, 0);
    if (strcmp(what, "malloc") == 0)
        shmem_int_get(&on_stack, malloc(100), 1, 0);
    exchange();
    addresses();
    children();
    of_libc();
    shmem_finalize();
    return 0;
}
