// Waits of C++ that end by time, on a simulated machine: in its time.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <shmem.h>
#include <thread>

using namespace std::chrono;

template <typename Wait> static void timed(const char *what, Wait wait) {
    auto start = steady_clock::now();
    bool came = wait();
    long long took = duration_cast<milliseconds>(steady_clock::now() - start).count();
    printf("%s: %d after %lld ms\n", what, came, took);
}

int main() {
    shmem_init();
    milliseconds brief(30), ever(20000);
    std::mutex mutex;
    std::condition_variable condition;
    bool done = false;
    std::unique_lock<std::mutex> held(mutex);
    std::promise<int> promise;
    std::future<int> answer = promise.get_future();
    std::thread other([&] {
        promise.set_value(7);
        std::lock_guard<std::mutex> lock(mutex);
        done = true;
        condition.notify_one();
    });
    timed("answer", [&] { return answer.wait_for(ever) == std::future_status::ready; });
    timed("condition", [&] { return condition.wait_for(held, ever, [&] { return done; }); });
    other.join();
    timed("no condition", [&] { return condition.wait_for(held, brief) == std::cv_status::no_timeout; });
    timed("no condition until", [&] { return condition.wait_until(held, system_clock::now() + brief) == std::cv_status::no_timeout; });
    std::promise<int> never;
    timed("no answer", [&] { return never.get_future().wait_for(brief) == std::future_status::ready; });
    std::timed_mutex lock;
    lock.lock();
    std::shared_timed_mutex shared;
    shared.lock_shared();
    // By another thread: for this one to try again is undefined.
    std::thread([&] {
        timed("no lock", [&] { return lock.try_lock_for(brief); });
        timed("no lock until", [&] { return lock.try_lock_until(system_clock::now() + brief); });
        timed("a reader", [&] { return shared.try_lock_shared_for(brief); });
        shared.unlock_shared();
        timed("no writer", [&] { return shared.try_lock_for(brief); });
    }).join();
    lock.unlock();
    shared.unlock_shared();
    shmem_finalize();
    return 0;
}
