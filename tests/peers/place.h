/* How far apart the CPUs of PE 0 and PE 1 are at this moment: the round trip of a word by plain loads and stores of memory that no library
 * knows, a page of a file. A virtual machine may change its CPUs' places at any time, and what two PEs can reach changes with that. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TRIPS = 100, BATCHES = 5 };

static struct place {
    _Alignas(128) long word[2][16];
} *place;
static long trips;

/* Everybody calls it, before a barrier. The file is the same for all libraries, so that they share whatever luck its page has in the caches. */
static void place_in(const char *path, int me) {
    int file = open(path, O_RDWR);
    place = file < 0 ? MAP_FAILED : mmap(0, sizeof *place, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (place == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    close(file);
    if (me == 0) memset(place, 0, sizeof *place);
}

/* PE 0 and PE 1 call it together: nanoseconds, the median of a few batches. Counts begin at 0, and so does the page. */
static double round_trip(int me) {
    double times[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        double start = now();
        for (int i = 0; i < TRIPS; i++) {
            trips++;
            if (me == 0) __atomic_store_n(place->word[1], trips, __ATOMIC_RELEASE);
            while (__atomic_load_n(place->word[me], __ATOMIC_ACQUIRE) < trips) {}
            if (me == 1) __atomic_store_n(place->word[0], trips, __ATOMIC_RELEASE);
        }
        times[batch] = (now() - start) / TRIPS * 1e9;
    }
    qsort(times, BATCHES, sizeof *times, compare);
    return times[BATCHES / 2];
}
