/* Ending the job from anywhere: `STATUS PE HOW`, with the others in a wait, a barrier, a lock or a loop; HOW is "thread" or "". */
#include <pthread.h>
#include "test.h"

static long word, lock;
static volatile int going = 1;

static void *leave(void *status) {
    shmem_global_exit((int)(intptr_t)status);
}

static void at_exit(void) { puts("at exit"); }

int main(int argc, char **argv) {
    begin();
    CHECK(argc > 3, "arguments");
    int status = atoi(argv[1]), pe = atoi(argv[2]);
    if (me == 0) shmem_set_lock(&lock);
    shmem_barrier_all();
    printf("printed %d", me);
    if (strcmp(argv[3], "all") == 0) shmem_global_exit(status + me);
    if (me == pe) {
        atexit(at_exit);
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
    case 3: while (going) continue; break;
    }
    puts("went on");
    return 99;
}
