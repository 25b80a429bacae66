// Global objects with constructors as symmetric objects, and exceptions beside the library.
#include <complex>
#include <map>
#include <shmem.h>
#include <stdexcept>
#include <stdio.h>
#include <string>
#include <vector>

static int calls = 0;

struct Counter {
    long count;
    std::string name;
    Counter(const char *name) : count(++calls * 10), name(name) {}
    ~Counter() { calls--; }
};

Counter first("first");
static Counter second("a name that is too long to be kept within the object itself");
std::vector<int> numbers(1000, 5);
static std::map<std::string, int> names = {{"one", 1}, {"two", 2}};

static Counter &local() {
    static Counter counter("local");
    return counter;
}

static int thrown(int pe) {
    try {
        throw std::runtime_error("PE " + std::to_string(pe));
    } catch (const std::exception &error) {
        return std::string(error.what()) == "PE " + std::to_string(pe);
    }
}

int main() {
    shmem_init();
    int me = shmem_my_pe(), n = shmem_n_pes(), to = (me + 1) % n, from = (me + n - 1) % n;
    bool right = first.count == 10 && second.count == 20 && second.name.size() > 40 && numbers[999] == 5 && names["two"] == 2;
    right = right && local().count == 30;
    shmem_barrier_all();
    shmem_long_p(&first.count, 100 + me, to);
    shmem_long_p(&local().count, 200 + me, to);
    shmem_barrier_all();
    right = right && first.count == 100 + from && local().count == 200 + from && local().name == "local" && thrown(me);
    numbers.resize(100000, me);
    names["three"] = 3;
    right = right && numbers.back() == me && names.size() == 3;
    printf("PE %d %s\n", me, right ? "right" : "wrong");
    shmem_finalize();
    return !right;
}
