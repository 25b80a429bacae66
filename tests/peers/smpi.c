/* Programs for SimGrid's SMPI: the same as memonet's in parts/src/with_memonet.rs. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIPS = 10 };

/* One-way times, in the machine's time. */
static void times(int me) {
    char *block = calloc(1, 1 << 20);
    static const int sizes[] = {8, 1 << 20};
    for (int size = 0; size < 2; size++) {
        int bytes = sizes[size];
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        for (int i = 0; i < TRIPS; i++) {
            if (me == 0) MPI_Send(block, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(block, bytes, MPI_CHAR, 1 - me, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (me == 1) MPI_Send(block, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        }
        double us = (MPI_Wtime() - start) / 2 / TRIPS * 1e6;
        if (me == 0) printf("%d 2 us %.3f - -\n", bytes, us);
    }
    free(block);
}

static void exchanges(int n, int me) {
    size_t each = 4096;
    char *from = malloc(n * each), *to = malloc(n * each);
    memset(from, me, n * each);
    for (int i = 0; i < 20; i++)
        MPI_Alltoall(from, each, MPI_CHAR, to, each, MPI_CHAR, MPI_COMM_WORLD);
    free(from);
    free(to);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int me, n;
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    const char *what = argc > 1 ? argv[1] : "start";
    if (!strcmp(what, "barriers"))
        for (int i = 0; i < 200; i++) MPI_Barrier(MPI_COMM_WORLD);
    if (!strcmp(what, "exchanges")) exchanges(n, me);
    if (!strcmp(what, "times")) times(me);
    MPI_Finalize();
    return 0;
}
