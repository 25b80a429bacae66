/* A picture that all PEs compute together. It shows the four ways in which PEs share data:

   * a mutex, to which two variables are bound: the next row that nobody has, and how often each number of iterations came;
   * a reader-writer lock with the part of the plane that the picture shows: PE 0 sets it, all read it;
   * a region, which holds the picture: each PE writes its rows in place, by pointers into the region;
   * messages, in which each PE tells PE 0 how many rows it did.

   oshcc -O2 -pthread examples/mandelbrot.c -o mandelbrot && oshrun -n 4 ./mandelbrot
   ./mandelbrot 256 2: a picture of 256 rows, by two threads of each PE. PE 0 compares the picture with one that it computes alone. */
#include <pthread.h>
#include <shmem.h>
#include <shmemx.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 256, MOST = 255, THREADS = 16 };

struct view { double left, top, step; };

static int rows = 64, threads = 1;
static shmemx_mutex_t work;
static long *next_row, *histogram;
static shmemx_rwlock_t shown;
static shmemx_region_t picture;

static void compute(const struct view *view, int row, unsigned char *colours)
{
    for (int column = 0; column < WIDTH; column++) {
        double x = 0, y = 0, re = view->left + column * view->step, im = view->top - row * view->step;
        int count = 0;
        for (; count < MOST && x * x + y * y < 4; count++) {
            double next = x * x - y * y + re;
            y = 2 * x * y + im;
            x = next;
        }
        colours[column] = (unsigned char)count;
    }
}

/* The next row, unless all are taken: whoever has the mutex has both of its variables. */
static int take_row(const unsigned char *done)
{
    shmemx_mutex_acquire(work);
    int row = *next_row < rows ? (int)(*next_row)++ : -1;
    for (int column = 0; done && column < WIDTH; column++)
        histogram[done[column]]++;
    shmemx_mutex_release(work);
    return row;
}

/* What each thread does. Gives the number of rows that it did. */
static void *compute_rows(void *unused)
{
    (void)unused;
    struct view view = *(const struct view *)shmemx_rwlock_acquire_read(shown);
    shmemx_rwlock_release(shown);
    unsigned char done[WIDTH];
    long count = 0;
    for (int row = take_row(NULL); row >= 0; row = take_row(done)) {
        unsigned char *colours = shmemx_region_start_write(picture, (size_t)row * WIDTH, WIDTH);
        compute(&view, row, colours);
        for (int column = 0; column < WIDTH; column++)
            done[column] = colours[column];
        shmemx_region_end(picture, colours);
        count++;
    }
    return (void *)count;
}

static long compute_together(void)
{
    pthread_t others[THREADS];
    long count = 0;
    void *more;
    for (int thread = 1; thread < threads; thread++)
        pthread_create(&others[thread], NULL, compute_rows, NULL);
    count += (long)compute_rows(NULL);
    for (int thread = 1; thread < threads; thread++) {
        pthread_join(others[thread], &more);
        count += (long)more;
    }
    return count;
}

/* Compares the picture and the histogram with those that this PE computes alone. */
static int is_right(void)
{
    static long counts[MOST + 1];
    int wrong = 0;
    struct view view = *(const struct view *)shmemx_rwlock_acquire_read(shown);
    shmemx_rwlock_release(shown);
    for (int row = 0; row < rows; row++) {
        unsigned char expected[WIDTH];
        compute(&view, row, expected);
        const unsigned char *colours = shmemx_region_start_read(picture, (size_t)row * WIDTH, WIDTH);
        for (int column = 0; column < WIDTH; column++) {
            wrong += colours[column] != expected[column];
            counts[expected[column]]++;
        }
        shmemx_region_end(picture, colours);
    }
    shmemx_mutex_acquire(work);
    for (int colour = 0; colour <= MOST; colour++)
        wrong += histogram[colour] != counts[colour];
    shmemx_mutex_release(work);
    return wrong == 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        rows = atoi(argv[1]);
    if (argc > 2)
        threads = atoi(argv[2]);
    if (rows < 1 || threads < 1 || threads > THREADS) {
        fprintf(stderr, "mandelbrot [ROWS [THREADS]]: at least one row, and 1 to %d threads\n", THREADS);
        return 2;
    }
    int provided;
    shmem_init_thread(SHMEM_THREAD_MULTIPLE, &provided);
    int me = shmem_my_pe(), npes = shmem_n_pes(), sender;
    size_t sizes[] = {sizeof *next_row, (MOST + 1) * sizeof *histogram};
    shmemx_messages_t reports;
    if (shmemx_mutex_create_variables(NULL, sizes, 2, &work) || shmemx_rwlock_create(NULL, sizeof(struct view), &shown) ||
        shmemx_region_create((size_t)rows * WIDTH, WIDTH, SHMEMX_REGION_CYCLIC, &picture) ||
        shmemx_messages_create(sizeof(long), 1, &reports)) {
        fprintf(stderr, "PE %d: no memory for the shared data\n", me);
        shmem_global_exit(1);
    }
    next_row = shmemx_mutex_variable(work, 0);
    histogram = shmemx_mutex_variable(work, 1);
    if (me == 0) {
        struct view *view = shmemx_rwlock_acquire_write(shown);
        *view = (struct view){-2.0, 1.25, 2.5 / rows};
        shmemx_rwlock_release(shown);
    }
    shmem_barrier_all();

    long count = compute_together();
    /* What this PE has written, PE 0 sees once this PE has released it and PE 0 has acquired it. */
    shmemx_region_release(picture);
    shmemx_messages_send(reports, &count, sizeof count, 0);
    if (me == 0) {
        long all = 0;
        for (int pe = 0; pe < npes; pe++) {
            shmemx_messages_recv(reports, &count, sizeof count, &sender);
            all += count;
        }
        shmemx_region_acquire(picture);
        shmemx_stats_t stats;
        shmemx_mutex_stats(work, &stats);
        printf("%s: %d PEs with %d threads did %ld rows; PE 0 had the mutex %llu times, and it came from another PE %llu times\n",
               is_right() && all == rows ? "right" : "wrong", npes, threads, all, (unsigned long long)stats.uses,
               (unsigned long long)stats.handovers);
    }
    shmem_barrier_all();
    shmemx_messages_destroy(reports);
    shmemx_region_destroy(picture);
    shmemx_rwlock_destroy(shown);
    shmemx_mutex_destroy(work);
    shmem_finalize();
    return 0;
}
