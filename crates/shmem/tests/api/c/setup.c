/* Initialising and leaving, once and again, in all the ways there are; and what can be asked. The first argument says which. */
#include "test.h"
#include <sys/wait.h>

static int kept = 5;
static long words[4];

/* Something that needs everybody. */
static void works(int round) {
    me = shmem_my_pe();
    npes = shmem_n_pes();
    int initialised = 0;
    shmem_query_initialized(&initialised);
    CHECK(initialised, "round %d", round);
    long *block = (long *)shmem_malloc(1000 * sizeof *block);
    shmem_long_p(&block[999], 100 * round + me, (me + 1) % npes);
    shmem_long_p(&words[0], 100 * round + me, (me + 1) % npes);
    shmem_barrier_all();
    CHECK(block[999] == 100 * round + (me + npes - 1) % npes && words[0] == block[999], "round %d", round);
    CHECK(shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &words[2], &words[1], 1) == 0, "round %d", round);
    shmem_barrier_all();
    /* Every second time all is left as it is. */
    if (round % 2) shmem_free(block);
    else {
        shmem_team_t team;
        shmem_ctx_t ctx;
        CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, npes, NULL, 0, &team) == 0, "round %d", round);
        CHECK(shmem_team_create_ctx(team, 0, &ctx) == 0, "round %d", round);
    }
}

static int asked(void) {
    int initialised = 1;
    shmem_query_initialized(&initialised);
    return initialised;
}

static void again(void) {
    CHECK(!asked(), "before");
    for (int round = 0; round < 6; round++) {
        shmem_init();
        works(round);
        kept++;
        int depth = 1 + round % 3, provided = -1;
        for (int i = 1; i < depth; i++) CHECK(shmem_init_thread(SHMEM_THREAD_SERIALIZED, &provided) == 0 && provided >= 0, "%d", provided);
        for (int i = 1; i < depth; i++) {
            shmem_finalize();
            works(round + 1);
        }
        long last = words[0];
        shmem_finalize();
        CHECK(!asked() && kept == 6 + round && words[0] == last, "round %d", round);
    }
}

/* As much of the heap as there may be, in every round: nothing is lost. SHMEM_SYMMETRIC_SIZE is 10 MiB. */
static void heap_again(void) {
    for (int round = 0; round < 5; round++) {
        shmem_init();
        char *block = (char *)shmem_malloc(9 << 20);
        CHECK(block && !shmem_malloc(9 << 20), "round %d", round);
        memset(block, round + 1, 9 << 20);
        shmem_finalize();
    }
}

static void queries(void) {
    int major = -1, minor = -1, provided = -1;
    char name[SHMEM_MAX_NAME_LEN];
    memset(name, 'x', sizeof name);
    /* These may be asked at any time. */
    shmem_init();
    me = _my_pe();
    npes = _num_pes();
    CHECK(me == shmem_my_pe() && npes == shmem_n_pes(), "old names");
    shmem_info_get_version(&major, &minor);
    CHECK(major == SHMEM_MAJOR_VERSION && minor == SHMEM_MINOR_VERSION && major == 1 && minor == 6, "%d.%d", major, minor);
    shmem_info_get_name(name);
    CHECK(memchr(name, 0, sizeof name) && strcmp(name, SHMEM_VENDOR_STRING) == 0, "%s", name);
    CHECK(_SHMEM_MAJOR_VERSION == major && _SHMEM_MINOR_VERSION == minor && _SHMEM_MAX_NAME_LEN == SHMEM_MAX_NAME_LEN, "old names");
    shmem_query_thread(&provided);
    CHECK(provided >= SHMEM_THREAD_SINGLE && provided <= SHMEM_THREAD_MULTIPLE, "%d", provided);
    CHECK(SHMEM_THREAD_SINGLE < SHMEM_THREAD_FUNNELED && SHMEM_THREAD_FUNNELED < SHMEM_THREAD_SERIALIZED &&
        SHMEM_THREAD_SERIALIZED < SHMEM_THREAD_MULTIPLE, "levels are in order");
    double began = shmemx_wtime();
    CHECK(shmemx_wtime() >= began && strlen(shmemx_nodename()) > 0, "%s", shmemx_nodename());
    shmem_pcontrol(0);
    shmem_pcontrol(1, "more", 5, 2.5);
    shmem_barrier_all();
    shmem_sync_all();
    finish();
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "queries")) queries();
    else if (!strcmp(what, "again")) again(), puts("done");
    else if (!strcmp(what, "heap")) heap_again(), puts("done");
    else if (!strcmp(what, "level")) {
        int level = atoi(argv[2]), provided = -1, same = -1;
        CHECK(shmem_init_thread(level, &provided) == 0 && provided >= level, "%d", provided);
        shmem_query_thread(&same);
        CHECK(same == provided, "%d, not %d", same, provided);
        works(1);
        finish();
    } else if (!strcmp(what, "start_pes")) {
        for (int i = 0; i < 3; i++) start_pes(0);
        works(1);
        puts("done");
    } else if (!strcmp(what, "no finalize")) {
        shmem_init();
        works(1);
        /* Complete at the end, for whoever comes late. */
        shmem_long_p(&words[3], 7, (me + 1) % npes);
        puts("done");
        if (argc > 2) exit(0);
    } else if (!strcmp(what, "forks")) {
        shmem_init();
        atexit(shmem_finalize);
        /* The child inherits the handler. */
        pid_t child = fork();
        if (child == 0) exit(0);
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child && status == 0, "%d", status);
        works(1);
        puts("done");
    } else if (!strcmp(what, "no init")) {
        CHECK(!asked(), "never");
        puts("done");
    } else if (!strcmp(what, "status")) {
        begin();
        finish();
        /* After the library: the program's own affair, and not a failure of the others. */
        return me == 0 ? atoi(argv[2]) : 0;
    } else if (!strcmp(what, "after")) {
        /* One ends so, before the others or after them. */
        const char *how = argv[2];
        if (strcmp(how, "never") != 0) begin(), finish();
        if (strcmp(how, "3") == 0 && npes > 1 && me > 0) sleep(1), puts("went on");
        fflush(stdout);
        if (!strcmp(how, "exec")) execl("/bin/true", "true", (char *)NULL);
        if (!strcmp(how, "quick")) quick_exit(0);
        if (!strcmp(how, "3")) return me == 0 ? 3 : 0;
        _exit(0);
    } else CHECK(0, "there is no %s", what);
    return 0;
}
