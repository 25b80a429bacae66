/* Ending the job from anywhere: `STATUS PE HOW [CALL]`, with the others in a wait, a barrier, a lock or a loop; HOW is "thread" or "", or it ends
   by a "mistake" or a "death". All have a handler then, which makes a CALL. */
#include <pthread.h>
#include <signal.h>
#include "test.h"

static long word, lock, *block;
static volatile int going = 1;
static const char *call = "";

static void *leave(void *status) {
    shmem_global_exit((int)(intptr_t)status);
}

static void *finalize(void *unused) {
    shmem_finalize();
    return unused;
}

static void at_exit(void) {
    puts("at exit");
    if (!strcmp(call, "loop")) while (going) continue;
    if (!strcmp(call, "free")) shmem_free(block);
    if (!strcmp(call, "barrier")) shmem_barrier_all();
    if (!strcmp(call, "wait")) shmem_long_wait_until(&word, SHMEM_CMP_NE, 0);
    if (!strcmp(call, "lock")) shmem_set_lock(&lock);
    if (!strcmp(call, "mistake")) shmem_long_p(NULL, 1, 0);
    if (!strcmp(call, "exit")) shmem_global_exit(99);
    if (!strcmp(call, "finalize")) shmem_finalize(), puts("and on");
}

int main(int argc, char **argv) {
    begin();
    CHECK(argc > 3, "arguments");
    int status = atoi(argv[1]), pe = atoi(argv[2]), dies = strcmp(argv[3], "death") == 0, errs = strcmp(argv[3], "mistake") == 0;
    if (argc > 4) call = argv[4];
    block = (long *)shmem_malloc(sizeof *block);
    if (me == 0) shmem_set_lock(&lock);
    shmem_barrier_all();
    printf("printed %d", me);
    if (strcmp(argv[3], "all") == 0) shmem_global_exit(status + me);
    atexit(at_exit);
    if (me == pe) {
        if (dies) raise(SIGKILL);
        if (errs) shmem_long_p(NULL, 1, 0);
        if (strcmp(argv[3], "finalizing") == 0) {
            pthread_t thread;
            pthread_create(&thread, NULL, finalize, NULL);
            sleep(1);
        }
        if (strcmp(argv[3], "thread") == 0) {
            pthread_t thread;
            pthread_create(&thread, NULL, leave, (void *)(intptr_t)status);
            pthread_join(thread, NULL);
        }
        shmem_global_exit(status);
    }
    switch (me % 4) {
    case 0: shmem_barrier_all(); break;
    case 1: shmem_long_wait_until(&word, SHMEM_CMP_NE, 0); break;
    case 2: shmem_set_lock(&lock); break;
    case 3:
        if (dies || errs) shmem_finalize();
        else while (going) continue;
        break;
    }
    puts("went on");
    return 99;
}
